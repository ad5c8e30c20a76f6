#include "layers/dispatch.h"

#include <algorithm>
#include <cstring>

#include "core/parallel_for.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kRowsPerCall = 16;

/// Calls f(row) for all rows, from many threads.
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

}  // namespace

Dispatch dispatch(std::span<const std::int64_t> ids, std::int64_t top_k, std::int64_t experts) {
  Dispatch d;
  d.row_ends.assign(static_cast<std::size_t>(experts), 0);
  for (const std::int64_t id : ids) ++d.row_ends[static_cast<std::size_t>(id)];
  std::vector<std::int64_t> next(d.row_ends.size());
  std::int64_t row = 0;
  for (std::size_t e = 0; e < next.size(); ++e) {
    next[e] = row;
    row += d.row_ends[e];
    d.row_ends[e] = row;
  }
  d.token_of.resize(ids.size());
  d.row_of.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t to = next[static_cast<std::size_t>(ids[i])]++;
    d.row_of[i] = to;
    d.token_of[static_cast<std::size_t>(to)] = static_cast<std::int64_t>(i) / top_k;
  }
  return d;
}

void gather_rows(const MatrixView& x, std::span<const std::int64_t> token_of,
                 const MatrixSpan& out) {
  const std::int64_t size = dtype_size(x.dtype);
  for_each_row(out.rows, [&](std::int64_t r) {
    std::memcpy(static_cast<std::byte*>(out.data) + r * out.stride * size,
                static_cast<const std::byte*>(x.data) +
                    token_of[static_cast<std::size_t>(r)] * x.stride * size,
                static_cast<std::size_t>(x.cols * size));
  });
}

void gather_rows(const QuantizedView& x, std::span<const std::int64_t> token_of,
                 const QuantizedSpan& out) {
  const std::int64_t code_bytes = x.shape.cols / 2, scale_bytes = x.shape.blocks();
  const bool each_row = x.shape.scope == GlobalScope::vector;
  if (!each_row) *out.global_scale = *x.global_scale;
  for_each_row(out.shape.rows, [&](std::int64_t r) {
    const std::int64_t t = token_of[static_cast<std::size_t>(r)];
    std::memcpy(out.codes + r * code_bytes, x.codes + t * code_bytes,
                static_cast<std::size_t>(code_bytes));
    std::memcpy(out.scales + r * scale_bytes, x.scales + t * scale_bytes,
                static_cast<std::size_t>(scale_bytes));
    if (each_row) out.global_scale[r] = x.global_scale[t];
  });
}

void add_rows(const MatrixView& other, const MatrixSpan& y) {
  for_each_row(y.rows, [&](std::int64_t r) {
    float* to = static_cast<float*>(y.data) + r * y.stride;
    const float* from = floats(other, r);
    for (std::int64_t c = 0; c < y.cols; ++c) to[c] += from[c];
  });
}

void combine_rows(const MatrixView& y, const MatrixView& rows, std::span<const float> weights,
                  std::span<const std::int64_t> row_of, const MatrixSpan& out) {
  const std::size_t top_k = out.rows == 0 ? 0 : row_of.size() / static_cast<std::size_t>(out.rows);
  for_each_row(out.rows, [&](std::int64_t t) {
    thread_local std::vector<float> sums;
    sums.assign(static_cast<std::size_t>(out.cols), 0.0f);
    if (y.data != nullptr) std::copy_n(floats(y, t), out.cols, sums.data());
    const std::size_t first = static_cast<std::size_t>(t) * top_k;
    for (std::size_t k = 0; k < top_k; ++k) {
      const float weight = weights[first + k];
      const float* row = floats(rows, row_of[first + k]);
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += weight * row[c];
    }
    store(sums.data(), out, t);
  });
}

}  // namespace nvfp4
