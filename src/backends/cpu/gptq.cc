// GPTQ on the CPU: quantizers/gptq.h with a row in each lane, in panels of kPanel rows. Changes to
// later columns are applied after every kBatch columns, as a GEMM. Its sums have the order of the
// definition.
#include "quantizers/gptq.h"

#include "backends/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gptq.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/row-math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {
#if NVFP4_HAVE_LANES
namespace {  // the other files of this folder have functions of the same names

constexpr std::int64_t kPanel = kGptqPanel;
/// Columns in a batch. The inputs of a GEMM, kPanel · kBatch · 4 bytes, fit the L1 cache and leave
/// some room.
constexpr std::int64_t kBatch = 48;
constexpr auto kStep = static_cast<std::int64_t>(kLanes);
/// Size of a GEMM's register tile: columns, and vectors of rows.
constexpr int kTall = HWY_TARGET <= HWY_AVX3 ? 6 : 4;
constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
static_assert(kPanel % (kWide * kStep) == 0);

/// Elements [K, kPanel] by columns of the weight.
using Columns = std::vector<float>;

HWY_INLINE VF at(const float* p, std::int64_t column, std::int64_t v) {
  return hn::LoadU(F32(), p + column * kPanel + v);
}
HWY_INLINE void put(VF x, float* p, std::int64_t column, std::int64_t v) {
  hn::StoreU(x, F32(), p + column * kPanel + v);
}

/// Computes out[k] += Σ matrix[j, k] · in[j - j0] for columns k0 + [0, kCount), and j in [j0, j1)
/// in order.
template <int kCount>
HWY_INLINE void add_columns(float* out, std::int64_t k0, const float* matrix, std::int64_t depth,
                            const float* in, std::int64_t j0, std::int64_t j1) {
  for (std::int64_t v = 0; v < kPanel; v += kWide * kStep) {
    VF sum[kCount][kWide];
    for (int t = 0; t < kCount; ++t)
      for (int w = 0; w < kWide; ++w) sum[t][w] = at(out, k0 + t, v + w * kStep);
    for (std::int64_t j = j0; j < j1; ++j) {
      const float* row = matrix + j * depth + k0;
      // Prefetches the next columns. Rows are pages apart, so no hardware prefetcher does.
      hwy::Prefetch(row + 16);
      VF x[kWide];
      for (int w = 0; w < kWide; ++w) x[w] = at(in, j - j0, v + w * kStep);
      HWY_UNROLL(6)
      for (int t = 0; t < kCount; ++t) {
        const VF factor = set_f32(row[t]);
        for (int w = 0; w < kWide; ++w) sum[t][w] = lanes_fused(x[w], factor, sum[t][w]);
      }
    }
    for (int t = 0; t < kCount; ++t)
      for (int w = 0; w < kWide; ++w) put(sum[t][w], out, k0 + t, v + w * kStep);
  }
}

HWY_NOINLINE void add_products(float* out, std::int64_t k0, std::int64_t k1, const float* matrix,
                               std::int64_t depth, const float* in, std::int64_t j0,
                               std::int64_t j1) {
  for (; k0 + kTall <= k1; k0 += kTall) add_columns<kTall>(out, k0, matrix, depth, in, j0, j1);
  for (; k0 < k1; ++k0) add_columns<1>(out, k0, matrix, depth, in, j0, j1);
}

/// Same as nearest_value().
HWY_INLINE VF nearest(VF wanted, VF scale, VF reciprocal) {
  const VU code = hn::And(e2m1_encode(hn::Mul(wanted, reciprocal)), set_u32(15));
  return hn::Mul(e2m1_decode(code), scale);
}

/// A panel's rows, quantized in one way.
struct Candidate {
  Columns values;            // [K, kPanel]
  std::vector<float> codes;  // codes of the scales, as numbers [K / 16, kPanel]
  double errors[kPanel];
};

class Panel {
 public:
  Panel(const GptqJob& job, std::int64_t first, std::int64_t rows)
      : job_(job), gram_(*job.gram), depth_(job.gram->depth), first_(first), rows_(rows) {
    const auto size = static_cast<std::size_t>(depth_ * kPanel);
    u_.assign(size, 0.0f);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < depth_; ++k)
        u_[static_cast<std::size_t>(k * kPanel + r)] =
            job.x[(first + r) * depth_ + k] * job.divisor;
    differences_.resize(size);
    gradient_.resize(size);
  }

  void run() {
    Candidate all[kGptqCandidates];
    decode(job_.mse_codes, job_.mse_scales, all[0]);
    measure(all[0]);
    decode(job_.codes, job_.scales, all[1]);
    measure(all[1]);
    all[2] = all[1];
    forward(all[2]);
    measure(all[2]);
    all[3] = all[2];
    descend(all[3]);
    add_errors(all[3]);
    for (std::int64_t r = 0; r < rows_; ++r) {
      int best = 0;
      for (int c = 1; c < kGptqCandidates; ++c)
        if (all[c].errors[r] < all[best].errors[r]) best = c;
      for (int c = 0; c < kGptqCandidates; ++c)
        job_.errors[(first_ + r) * kGptqCandidates + c] = all[c].errors[r];
      job_.chosen[first_ + r] = static_cast<std::uint8_t>(best);
      encode(all[best], r);
    }
  }

 private:
  static std::size_t place(std::int64_t column, std::int64_t row) {
    return static_cast<std::size_t>(column * kPanel + row);
  }

  /// Dequantizes a panel. Lanes without a row are zeros.
  void decode(const std::uint8_t* codes, const std::uint8_t* scales, Candidate& to) const {
    to.values.assign(u_.size(), 0.0f);
    to.codes.assign(u_.size() / kBlock, 1.0f);
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::uint8_t* row = codes + (first_ + r) * depth_ / 2;
      for (std::int64_t k = 0; k < depth_; ++k) {
        const std::uint8_t scale = scales[(first_ + r) * (depth_ / kBlock) + k / kBlock];
        to.codes[place(k / kBlock, r)] = static_cast<float>(scale);
        to.values[place(k, r)] =
            E2M1{static_cast<std::uint8_t>(row[k / 2] >> (k % 2 * 4) & 0xF)}.to_float() *
            E4M3{scale}.to_float();
      }
    }
  }

  VF scale_of(const Candidate& c, std::int64_t block, std::int64_t v) const {
    return e4m3_decode(hn::BitCast(U32(), hn::ConvertTo(I32(), at(c.codes.data(), block, v))));
  }

  /// Computes gradient_of() and output_error().
  void measure(Candidate& c) {
    for (std::int64_t k = 0; k < depth_; ++k)
      for (std::int64_t v = 0; v < kPanel; v += kStep)
        put(hn::Sub(at(c.values.data(), k, v), at(u_.data(), k, v)), differences_.data(), k, v);
    std::fill(gradient_.begin(), gradient_.end(), 0.0f);
    for (std::int64_t j = 0; j < depth_; j += kBatch)
      add_products(gradient_.data(), 0, depth_, gram_.gram.data(), depth_,
                   differences_.data() + j * kPanel, j, HWY_MIN(j + kBatch, depth_));
    add_errors(c);
  }

  void add_errors(Candidate& c) const {
    std::fill(c.errors, c.errors + kPanel, 0.0);
    alignas(64) float d[kLanes], g[kLanes];
    for (std::int64_t k = 0; k < depth_; ++k)
      for (std::int64_t v = 0; v < kPanel; v += kStep) {
        const VF difference = hn::Sub(at(c.values.data(), k, v), at(u_.data(), k, v));
        hn::Store(difference, F32(), d);
        hn::Store(lanes_fused(set_f32(-gram_.damping), difference, at(gradient_.data(), k, v)),
                  F32(), g);
        for (std::int64_t i = 0; i < kStep; ++i)
          c.errors[v + i] += static_cast<double>(d[i]) * static_cast<double>(g[i]);
      }
  }

  /// Same as gptq_row().
  void forward(Candidate& c) {
    Columns wanted(u_.size()), errors(static_cast<std::size_t>(kBatch * kPanel));
    for (std::int64_t p = 0; p < depth_; ++p)
      for (std::int64_t v = 0; v < kPanel; v += kStep)
        put(at(u_.data(), gram_.order[static_cast<std::size_t>(p)], v), wanted.data(), p, v);
    for (std::int64_t begin = 0; begin < depth_; begin += kBatch) {
      const std::int64_t end = HWY_MIN(begin + kBatch, depth_);
      for (std::int64_t p = begin; p < end; ++p) {
        const std::int64_t column = gram_.order[static_cast<std::size_t>(p)];
        const VF reciprocal = set_f32(gram_.reciprocal[static_cast<std::size_t>(p)]);
        float* const error = errors.data() + (p - begin) * kPanel;
        for (std::int64_t v = 0; v < kPanel; v += kStep) {
          const VF scale = scale_of(c, column / kBlock, v), w = at(wanted.data(), p, v);
          const VF value = nearest(w, scale, hn::Div(set_f32(1.0f), scale));
          put(value, c.values.data(), column, v);
          put(hn::Neg(hn::Mul(hn::Sub(w, value), reciprocal)), error, 0, v);
        }
        add_products(wanted.data(), p + 1, end, gram_.upper.data(), depth_, error, p, p + 1);
      }
      add_products(wanted.data(), end, depth_, gram_.upper.data(), depth_, errors.data(), begin,
                   end);
    }
  }

  /// Same as descend_row(), with descend_block() for every lane.
  void descend(Candidate& c) {
    for (int sweep = 0; sweep < job_.sweeps; ++sweep) {
      bool changed = false;
      for (std::int64_t begin = 0; begin < depth_; begin += kBatch) {
        const std::int64_t end = HWY_MIN(begin + kBatch, depth_);
        for (std::int64_t k = begin; k < end; k += kBlock) {
          float* const changes = differences_.data() + k * kPanel;
          for (std::int64_t v = 0; v < kPanel; v += kStep)
            changed |= descend_lanes(c, k / kBlock, v, changes + v);
          add_products(gradient_.data(), begin, end, gram_.gram.data(), depth_, changes, k,
                       k + kBlock);
        }
        const float* const changes = differences_.data() + begin * kPanel;
        add_products(gradient_.data(), 0, begin, gram_.gram.data(), depth_, changes, begin, end);
        add_products(gradient_.data(), end, depth_, gram_.gram.data(), depth_, changes, begin, end);
      }
      if (!changed) return;
    }
  }

  HWY_NOINLINE bool descend_lanes(Candidate& c, std::int64_t block, std::int64_t v,
                                  float* changes) {
    const float* inverse = gram_.block_inverse.data() + block * kBlock * kBlock;
    const float* upper = gram_.block_upper.data() + block * kBlock * kBlock;
    const float* reciprocal = gram_.block_reciprocal.data() + block * kBlock;
    float* const values = c.values.data() + block * kBlock * kPanel;
    const float* const gradient = gradient_.data() + block * kBlock * kPanel;
    float* const code_at = c.codes.data() + block * kPanel + v;
    VF target[kBlock], best[kBlock];
    VF cost = hn::Zero(F32());
    for (int i = 0; i < kBlock; ++i) {
      VF step = hn::Zero(F32());
      for (int j = 0; j < kBlock; ++j)
        step = lanes_fused(set_f32(inverse[i * kBlock + j]), at(gradient, j, v), step);
      cost = lanes_fused(at(gradient, i, v), step, cost);
      best[i] = at(values, i, v);
      target[i] = hn::Sub(best[i], step);
    }
    cost = hn::Mul(cost, set_f32(1 - 0x1p-16f));
    const VF before = hn::LoadU(F32(), code_at);
    VF best_code = before;
    auto any = hn::Lt(hn::Zero(F32()), hn::Zero(F32()));
    for (int n = 0; n < kScaleNeighbours; ++n) {
      const VF shifted = hn::Add(before, set_f32(static_cast<float>(n - kScaleNeighbours / 2)));
      const VF code = hn::Min(hn::Max(shifted, set_f32(1.0f)), set_f32(E4M3::kMaxBits));
      const VF s = e4m3_decode(hn::BitCast(U32(), hn::ConvertTo(I32(), code)));
      const VF r = hn::Div(set_f32(1.0f), s);
      VF wanted[kBlock], found[kBlock];
      VF sum = hn::Zero(F32());
      for (int i = 0; i < kBlock; ++i) wanted[i] = target[i];
      for (int i = 0; i < kBlock; ++i) {
        found[i] = nearest(wanted[i], s, r);
        const VF error = hn::Neg(hn::Mul(hn::Sub(wanted[i], found[i]), set_f32(reciprocal[i])));
        sum = lanes_fused(error, error, sum);
        for (int k = i + 1; k < kBlock; ++k)
          wanted[k] = lanes_fused(error, set_f32(upper[i * kBlock + k]), wanted[k]);
      }
      const auto better = hn::Lt(sum, cost);
      any = hn::Or(any, better);
      cost = hn::IfThenElse(better, sum, cost);
      best_code = hn::IfThenElse(better, code, best_code);
      for (int i = 0; i < kBlock; ++i) best[i] = hn::IfThenElse(better, found[i], best[i]);
    }
    for (int i = 0; i < kBlock; ++i) {
      const VF change = hn::Sub(best[i], at(values, i, v));
      hn::StoreU(change, F32(), changes + i * kPanel);
      put(best[i], values, i, v);
    }
    hn::StoreU(best_code, F32(), code_at);
    return !hn::AllFalse(F32(), any);
  }

  void encode(const Candidate& c, std::int64_t r) const {
    std::uint8_t* codes = job_.codes + (first_ + r) * depth_ / 2;
    std::uint8_t* scales = job_.scales + (first_ + r) * (depth_ / kBlock);
    for (std::int64_t b = 0; b < depth_ / kBlock; ++b) {
      const E4M3 scale{static_cast<std::uint8_t>(c.codes[place(b, r)])};
      scales[b] = scale.bits;
      const float reciprocal = 1.0f / scale.to_float();
      for (std::int64_t k = b * kBlock; k < (b + 1) * kBlock; k += 2)
        codes[k / 2] = static_cast<std::uint8_t>(
            E2M1::from_float(c.values[place(k, r)] * reciprocal).bits |
            E2M1::from_float(c.values[place(k + 1, r)] * reciprocal).bits << 4);
    }
  }

  const GptqJob& job_;
  const GramFactor& gram_;
  const std::int64_t depth_, first_, rows_;
  Columns u_, differences_, gradient_;
};

void gptq(const GptqJob& job, std::int64_t r0, std::int64_t r1) {
  for (std::int64_t r = r0; r < r1; r += kPanel) Panel(job, r, HWY_MIN(kPanel, r1 - r)).run();
}

}  // namespace

void fill_gptq(Backend& backend) { backend.gptq = gptq; }
#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
