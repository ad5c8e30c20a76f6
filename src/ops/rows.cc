#include "ops/rows.h"

#include <algorithm>
#include <cstring>

#include "backends/host/host.h"
#include "core/parallel_for.h"
#include "ops/measure.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

/// Size of a slab of FP32 rows. A slab stays in the L1 cache until its rows are quantized.
constexpr std::int64_t kSlabBytes = 32 * 1024;

/// Returns memory of this thread with at least `bytes` bytes. It is reused, because new memory
/// causes page faults.
float* slab_memory(std::int64_t bytes) {
  thread_local Buffer memory;
  thread_local std::int64_t size = 0;
  if (size < bytes) {
    memory = Buffer(bytes, {});
    size = bytes;
  }
  return static_cast<float*>(memory.data());
}

/// A few FP32 rows and the largest magnitude of each.
struct Slab {
  float* rows;
  float* amax;
};

/// Calls f(r0, r1, slab) for ranges that together contain all rows, from many threads. With `make`
/// the slab holds the rows; otherwise it only has memory for the amaxes.
template <class F>
void for_each_slab(const Backend& backend, const RowJob& job, bool make, F&& f) {
  const std::vector<std::int64_t> cuts = row_cuts(job.x.rows, job.x.cols * dtype_size(job.x.dtype));
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t row_bytes = std::max<std::int64_t>(1, job.cols) * kFloat;
  parallel_for(static_cast<std::int64_t>(cuts.size()) - 1, [&](std::int64_t i) {
    const std::int64_t end = cuts[static_cast<std::size_t>(i) + 1];
    std::int64_t r0 = cuts[static_cast<std::size_t>(i)];
    const std::int64_t step =
        make ? std::clamp<std::int64_t>(kSlabBytes / row_bytes, 1, end - r0) : end - r0;
    float* memory = slab_memory(make ? step * (row_bytes + kFloat) : step * kFloat);
    const Slab slab{memory, make ? memory + step * job.cols : memory};
    for (; r0 < end; r0 += step) {
      const std::int64_t r1 = std::min(r0 + step, end);
      if (make) backend.make_rows(job, r0, r1, slab.rows, slab.amax);
      f(r0, r1, slab);
    }
  });
}

/// The rows to process: the rows of all groups, or every row if there are no groups.
class RowSet {
 public:
  RowSet(const RowGroups& groups, std::int64_t rows) {
    if (groups.count == 0) return;
    member_.assign(static_cast<std::size_t>(rows), false);
    for (std::int64_t g = 0; g < groups.count; ++g)
      for (std::int64_t r = std::max<std::int64_t>(0, groups.starts[g]);
           r < std::min<std::int64_t>(rows, groups.ends[g]); ++r)
        member_[static_cast<std::size_t>(r)] = true;
  }
  bool operator[](std::int64_t r) const {
    return member_.empty() || member_[static_cast<std::size_t>(r)];
  }
  /// Returns the end of the run of rows, up to `end`, with the same membership as r.
  std::int64_t run_end(std::int64_t r, std::int64_t end) const {
    const bool first = (*this)[r];
    do ++r;
    while (r < end && (*this)[r] == first);
    return r;
  }

 private:
  std::vector<bool> member_;
};

class RowQuantizer {
 public:
  RowQuantizer(const Backend& backend, const RowQuantizeJob& job)
      : backend_(backend),
        job_(job),
        rows_(job.rows),
        shape_(job.out.shape),
        set_(job.groups, shape_.rows),
        divisors_(static_cast<std::size_t>(shape_.global_count())) {}

  void run() {
    if (shape_.layout != ScaleLayout::linear && shape_.scale_bytes() > 0)
      std::memset(job_.out.scales, 0, static_cast<std::size_t>(shape_.scale_bytes()));
    if (!job_.global.empty())
      for (std::size_t i = 0; i < divisors_.size(); ++i) set_global(i, job_.global[i]);
    else if (shape_.scope == GlobalScope::tensor)
      set_global(0, GlobalScale::from_amax(tensor_amax(), job_.quantizer));
    for_each_slab(
        backend_, rows_, !plain(),
        [&](std::int64_t r0, std::int64_t r1, const Slab& slab) { quantize(r0, r1, slab); });
  }

 private:
  bool plain() const { return rows_.source == RowSource::plain; }
  bool measures_rows() const { return job_.global.empty() && shape_.scope == GlobalScope::vector; }
  void set_global(std::size_t i, const GlobalScale& g) {
    divisors_[i] = g.divisor;
    job_.out.global_scale[i] = g.multiplier;
  }

  /// Writes the amaxes of rows [r0, r1) to slab.amax. Rows of no group have 0.
  void measure(std::int64_t r0, std::int64_t r1, const Slab& slab) {
    for (std::int64_t r = r0; r < r1; ++r) {
      if (!set_[r])
        slab.amax[r - r0] = 0;
      else if (plain())
        slab.amax[r - r0] = backend_.amax(rows_.x, r, r + 1).amax;
    }
  }

  /// Computes all rows once, only to measure them.
  float tensor_amax() {
    std::vector<float> amax(static_cast<std::size_t>(shape_.rows));
    for_each_slab(backend_, rows_, !plain(),
                  [&](std::int64_t r0, std::int64_t r1, const Slab& slab) {
                    measure(r0, r1, slab);
                    std::copy_n(slab.amax, r1 - r0, amax.data() + r0);
                  });
    if (rows_.norm.residual.data != nullptr) {  // by now the residual may be overwritten
      rows_.x = rows_.norm.residual_out;
      rows_.norm.residual = {};
    }
    return amax.empty() ? 0.0f : *std::max_element(amax.begin(), amax.end());
  }

  void quantize(std::int64_t r0, std::int64_t r1, const Slab& slab) {
    EncodeJob encode{.x = rows_.x,
                     .out = job_.out,
                     .quantizer = job_.quantizer,
                     .divisors = divisors_.data(),
                     .weights = nullptr};
    if (!plain()) {
      encode.x = {slab.rows, DType::f32, r1 - r0, rows_.cols};
      encode.first_row = r0;
    }
    if (!measures_rows()) {
      if (!plain()) fetch_while(encode, r1, r1 + (r1 - r0));
      return encode_rows(encode, r0, r1);
    }
    for (std::int64_t r = r0; r < r1; ++r) {
      const Slab row{nullptr, slab.amax + (r - r0)};
      measure(r, r + 1, row);
      set_global(static_cast<std::size_t>(r), GlobalScale::from_amax(*row.amax, job_.quantizer));
      const std::int64_t next = r + (plain() ? 1 : r1 - r0);
      fetch_while(encode, next, next + 1);
      encode_rows(encode, r, r + 1);
    }
  }

  /// Sets up a prefetch of rows [r0, r1) of the input during `encode`. Without it, reading them
  /// would wait.
  void fetch_while(EncodeJob& encode, std::int64_t r0, std::int64_t r1) const {
    const MatrixView& x = rows_.x;
    encode.next = nullptr;
    if (r1 > x.rows || (!plain() && rows_.source != RowSource::rms_norm)) return;
    encode.next_bytes = x.cols * dtype_size(x.dtype);
    encode.next_stride = x.stride * dtype_size(x.dtype);
    encode.next = static_cast<const std::byte*>(x.data) + r0 * encode.next_stride;
  }

  void encode_rows(const EncodeJob& encode, std::int64_t r0, std::int64_t r1) {
    for (std::int64_t r = r0; r < r1;) {
      const std::int64_t end = set_.run_end(r, r1);
      if (set_[r])
        backend_.encode(encode, {r, end, 0, shape_.blocks()});
      else
        clear(r, end);
      r = end;
    }
  }

  void clear(std::int64_t r0, std::int64_t r1) {
    if (shape_.cols == 0) return;
    const auto zero = [&](std::uint8_t* data, std::int64_t row_bytes) {
      std::memset(data + r0 * row_bytes, 0, static_cast<std::size_t>((r1 - r0) * row_bytes));
    };
    zero(job_.out.codes, shape_.cols / 2);
    if (shape_.layout == ScaleLayout::linear) zero(job_.out.scales, shape_.blocks());
  }

  const Backend& backend_;
  const RowQuantizeJob& job_;
  RowJob rows_;
  QuantizedShape shape_;
  RowSet set_;
  std::vector<float> divisors_;
};

}  // namespace

void stage_routing(const Routing& routing, const StagedRouting& staged) {
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    for (std::int64_t k = 0; k < routing.top_k; ++k)
      staged.ids[r * staged.id_stride + k] = host::id_at(routing, r, k);
    std::copy_n(routing.weights + r * routing.weight_stride, routing.top_k,
                staged.weights + r * staged.weight_stride);
  }
}

void quantize_rows(const Backend& backend, const RowQuantizeJob& job) {
  RowQuantizer(backend, job).run();
  if (job.routing.top_k > 0) stage_routing(job.routing, job.staged);
}

void store_rows(const Backend& backend, const RowJob& job, const MatrixSpan& y) {
  for_each_slab(backend, job, true, [&](std::int64_t r0, std::int64_t r1, const Slab& slab) {
    backend.store_rows(slab.rows, r0, r1, y);
  });
}

}  // namespace nvfp4
