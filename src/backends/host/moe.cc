// Mixture of experts on the CPU: sorts rows by expert, gathers and combines them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/host/host.h"
#include "core/parallel_for.h"

namespace nvfp4::host {
namespace {

constexpr std::int64_t kRowsPerCall = 16;

/// Calls f(row) for all rows from many threads.
template <class F>
void for_each_row(std::int64_t rows, F&& f) {
  parallel_for(ceil_div(rows, kRowsPerCall), [&](std::int64_t i) {
    for (std::int64_t r = i * kRowsPerCall; r < std::min(rows, (i + 1) * kRowsPerCall); ++r) f(r);
  });
}

const float* floats(const MatrixView& m, std::int64_t row) {
  return static_cast<const float*>(m.data) + row * m.stride;
}

void store(const float* values, const MatrixSpan& out, std::int64_t row) {
  if (out.dtype == DType::f32) {
    std::copy_n(values, out.cols, static_cast<float*>(out.data) + row * out.stride);
    return;
  }
  std::uint16_t* to = static_cast<std::uint16_t*>(out.data) + row * out.stride;
  if (out.dtype == DType::bf16)
    for (std::int64_t c = 0; c < out.cols; ++c) to[c] = BF16::from_float(values[c]).bits;
  else
    for (std::int64_t c = 0; c < out.cols; ++c) to[c] = FP16::from_float(values[c]).bits;
}

template <class T>
std::int64_t load(const void* ids, std::int64_t i) {
  return static_cast<std::int64_t>(static_cast<const T*>(ids)[i]);
}

/// Returns the expert of a pair, or -1 if the id is not in [0, experts).
std::int64_t expert_at(const Routing& routing, std::int64_t pair, std::int64_t experts) {
  const std::int64_t id = id_at(routing, pair / routing.top_k, pair % routing.top_k);
  return id >= 0 && id < experts ? id : -1;
}

}  // namespace

std::int64_t id_at(const Routing& routing, std::int64_t token, std::int64_t choice) {
  const std::int64_t i = token * routing.id_stride + choice;
  switch (routing.id_type) {
    case IndexType::i8:
      return load<std::int8_t>(routing.ids, i);
    case IndexType::u8:
      return load<std::uint8_t>(routing.ids, i);
    case IndexType::i16:
      return load<std::int16_t>(routing.ids, i);
    case IndexType::u16:
      return load<std::uint16_t>(routing.ids, i);
    case IndexType::i32:
      return load<std::int32_t>(routing.ids, i);
    case IndexType::u32:
      return load<std::uint32_t>(routing.ids, i);
    case IndexType::i64:
    case IndexType::u64:  // above 2^63 neither reading names an expert
      return load<std::int64_t>(routing.ids, i);
  }
  return -1;
}

void dispatch(const DispatchJob& job) {
  const std::int64_t pairs = job.routing.rows * job.routing.top_k;
  std::fill_n(job.row_ends, job.experts, 0);
  std::fill_n(job.token_of, pairs, -1);
  std::fill_n(job.expert_of, pairs, 0);
  for (std::int64_t p = 0; p < pairs; ++p)
    if (const std::int64_t e = expert_at(job.routing, p, job.experts); e >= 0) ++job.row_ends[e];
  // row_ends[e] is the next row of expert e; in the end it is the end of its rows.
  std::int32_t row = 0;
  for (std::int64_t e = 0; e < job.experts; ++e) {
    const std::int32_t count = job.row_ends[e];
    job.row_ends[e] = row;
    row += count;
  }
  for (std::int64_t p = 0; p < pairs; ++p) {
    const std::int64_t e = expert_at(job.routing, p, job.experts);
    job.row_of[p] = e < 0 ? -1 : job.row_ends[e]++;
    if (e < 0) continue;
    job.token_of[job.row_of[p]] = static_cast<std::int32_t>(p / job.routing.top_k);
    job.expert_of[job.row_of[p]] = static_cast<std::int32_t>(e);
  }
}

void gather_rows(const GatherJob& job) {
  const auto bytes = static_cast<std::size_t>(job.row_bytes);
  for_each_row(job.rows, [&](std::int64_t r) {
    const std::int64_t from =
        job.index != nullptr ? job.index[r] : expert_at(job.routing, r, job.experts);
    std::byte* const to = static_cast<std::byte*>(job.to) + r * job.row_bytes;
    if (from < 0)
      std::memset(to, 0, bytes);
    else
      std::memcpy(to, static_cast<const std::byte*>(job.from) + from * job.from_stride, bytes);
  });
}

void combine_rows(const CombineJob& job) {
  const MatrixSpan& out = job.out;
  const Routing& routing = job.routing;
  for_each_row(out.rows, [&](std::int64_t t) {
    thread_local std::vector<float> sums;
    sums.assign(static_cast<std::size_t>(out.cols), 0.0f);
    if (job.first.data != nullptr) std::copy_n(floats(job.first, t), out.cols, sums.data());
    for (std::int64_t k = 0; k < routing.top_k; ++k) {
      const std::int64_t pair = t * routing.top_k + k;
      const std::int64_t r = job.row_of != nullptr                        ? job.row_of[pair]
                             : expert_at(routing, pair, job.experts) >= 0 ? pair
                                                                          : -1;
      if (r < 0) continue;
      const float weight = routing.weights[t * routing.weight_stride + k];
      const float* row = floats(job.rows, r);
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += weight * row[c];
    }
    store(sums.data(), out, t);
  });
}

void add_rows(const MatrixView& other, const MatrixSpan& y, Stream) {
  for_each_row(y.rows, [&](std::int64_t r) {
    float* to = static_cast<float*>(y.data) + r * y.stride;
    const float* from = floats(other, r);
    for (std::int64_t c = 0; c < y.cols; ++c) to[c] += from[c];
  });
}

void clear_rows_from(const std::int32_t* first, const MatrixSpan& m, Stream) {
  for (std::int64_t r = *first; r < m.rows; ++r)
    std::fill_n(static_cast<float*>(m.data) + r * m.stride, m.cols, 0.0f);
}

}  // namespace nvfp4::host
