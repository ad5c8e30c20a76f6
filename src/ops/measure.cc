#include "ops/measure.h"

#include <algorithm>
#include <cmath>

#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "ops/options.h"

namespace nvfp4 {

AmaxResult matrix_amax(const Backend& backend, const MatrixView& x) {
  const std::vector<std::int64_t> cuts = row_cuts(x.rows, x.cols * dtype_size(x.dtype));
  std::vector<AmaxResult> parts(cuts.size() - 1);
  parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    const auto j = static_cast<std::size_t>(i);
    parts[j] = backend.amax(x, cuts[j], cuts[j + 1]);
  });
  AmaxResult all;
  for (const AmaxResult& part : parts) {
    all.amax = std::max(all.amax, part.amax);
    all.finite &= part.finite;
  }
  return all;
}

void vector_amax(const Backend& backend, const MatrixView& x, BlockAxis axis, float* out) {
  if (axis == BlockAxis::rows) {
    const std::vector<std::int64_t> cuts = row_cuts(x.rows, x.cols * dtype_size(x.dtype));
    parallel_for(static_cast<std::int64_t>(cuts.size()) - 1, [&](std::int64_t i) {
      const auto j = static_cast<std::size_t>(i);
      for (std::int64_t r = cuts[j]; r < cuts[j + 1]; ++r) out[r] = backend.amax(x, r, r + 1).amax;
    });
    return;
  }
  // One task for each range of columns, so that no result is shared between threads.
  constexpr std::int64_t kColumns = 1024;
  std::fill_n(out, x.cols, 0.0f);
  parallel_for(ceil_div(x.cols, kColumns), [&](std::int64_t i) {
    MatrixView part = x;
    const std::int64_t c0 = i * kColumns;
    part.data = static_cast<const std::byte*>(x.data) + c0 * dtype_size(x.dtype);
    part.cols = std::min(kColumns, x.cols - c0);
    backend.column_amax(part, 0, x.rows, out + c0);
  });
}

float amax(MatrixView x, std::string_view backend) {
  require_matrix("amax", "x", x);
  require_cpu("amax", "x", x.device);
  return matrix_amax(find_backend(backend), x).amax;
}

void amax_into(MatrixView x, float* out, GlobalScope scope, BlockAxis axis,
               std::string_view backend, Stream stream) {
  require_matrix("amax", "x", x);
  const std::int64_t vectors = axis == BlockAxis::rows ? x.rows : x.cols;
  require_array("amax", "out", out, scope == GlobalScope::tensor ? 1 : vectors);
  if (x.device.type == DeviceType::cuda)
    return device_backend(x.device).amax(x, out, scope, axis, stream);
  const Backend& chosen = find_backend(backend);
  if (scope == GlobalScope::tensor)
    *out = matrix_amax(chosen, x).amax;
  else
    vector_amax(chosen, x, axis, out);
}

void global_scales_into(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                        Device device, Stream stream) {
  require<ShapeError>(count >= 0, "global_scales: count = {}, must not be negative", count);
  require_array("global_scales", "amaxes", amaxes, count);
  require_array("global_scales", "out", out, count);
  if (device.type == DeviceType::cuda)
    return device_backend(device).global_scales(amaxes, out, count, q, device, stream);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = GlobalScale::from_amax(amaxes[i] >= 0 ? amaxes[i] : 0.0f, q);
}

void gram_into(MatrixView x, MatrixSpan out, bool accumulate, Stream stream) {
  require_matrix("gram", "x", x);
  require_matrix("gram", "out", out);
  const std::int64_t block = out.cols;
  require<ShapeError>(block == 16 || block == 32,
                      "gram: out.cols = {}, must be 16 or 32, the size of a block", block);
  require<ShapeError>(x.cols % block == 0, ErrorCode::partial_block,
                      "gram: x.cols = {}, must be a multiple of {}", x.cols, block);
  require<ShapeError>(out.rows == x.cols, "gram: out.rows = {}, must be x.cols = {}", out.rows,
                      x.cols);
  require<ValueError>(out.dtype == DType::f32, "gram: out.dtype = {}, must be f32",
                      dtype_name(out.dtype));
  require_on("gram", "out", out.device, x.device);
  if (x.device.type == DeviceType::cuda)
    return device_backend(x.device).gram(x, out, accumulate, stream);
  const Backend& backend = find_backend("");
  parallel_for(x.cols / block, [&](std::int64_t b) { backend.gram(x, out, accumulate, b, b + 1); });
}

}  // namespace nvfp4
