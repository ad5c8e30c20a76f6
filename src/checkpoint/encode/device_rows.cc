#include "checkpoint/encode/device_rows.h"

#include <algorithm>

#include "core/device_memory.h"
#include "ops/error_parts.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

std::int64_t workspace_bytes(Device device, const QuantizedShape& shape, const RowsMethod& method) {
  return method.gram ? device_backend(device).gptq_workspace(shape.rows, shape.cols) : -1;
}

/// Returns the number of error parts of each chunk but the last.
std::int64_t errors_per_chunk(const QuantizedShape& shape, std::int64_t step) {
  return error_part_count({.rows = std::min(step, shape.rows), .cols = shape.cols});
}

}  // namespace

DeviceLayout::DeviceLayout(DType dtype, const QuantizedShape& shape, std::int64_t step,
                           std::int64_t channel_count, std::int64_t workspace_bytes) {
  const auto take = [&](std::int64_t& offset, std::int64_t size) {
    offset = bytes;
    bytes += round_up(size, kDeviceAlignment);
  };
  const bool by_gram = workspace_bytes >= 0;
  const std::int64_t parts = ceil_div(shape.rows, step) * errors_per_chunk(shape, step);
  take(codes, shape.code_bytes());
  take(scales, shape.scale_bytes());
  if (by_gram) {
    take(chosen, shape.rows);
    take(candidates, shape.rows * kGptqCandidates * static_cast<std::int64_t>(sizeof(double)));
  }
  take(errors, parts * static_cast<std::int64_t>(sizeof(QuantizationError)));
  result_bytes = bytes;
  take(x, shape.rows * shape.cols * dtype_size(dtype));
  take(channels, channel_count * dtype_size(DType::f32));
  take(multiplier, dtype_size(DType::f32));
  if (!by_gram) return;
  take(mse_codes, shape.code_bytes());
  take(mse_scales, shape.scale_bytes());
  take(workspace, workspace_bytes);
}

DeviceRows::DeviceRows(Device device, DType dtype, std::int64_t rows, std::int64_t cols,
                       std::int64_t step, const RowsMethod& method)
    : device_(device),
      dtype_(dtype),
      shape_{.rows = rows, .cols = cols},
      step_(step),
      method_(&method),
      layout_(dtype, shape_, step, static_cast<std::int64_t>(method.weights.size()),
              workspace_bytes(device, shape_, method)) {}

QuantizedShape DeviceRows::part(std::int64_t chunk) const {
  return {.rows = std::min(step_, shape_.rows - chunk * step_), .cols = shape_.cols};
}

void DeviceRows::start(std::byte* memory, const std::byte* here, std::byte* there,
                       std::span<const float> channels, const DeviceGramFactor* gram,
                       std::byte* result, Stream stream) const {
  const auto bytes = [&](std::int64_t offset) {
    return reinterpret_cast<std::uint8_t*>(memory + offset);
  };
  const std::int64_t cols = shape_.cols;
  const MatrixSpan x(there ? there : memory + layout_.x, dtype_, shape_.rows, cols, cols, device_);
  if (!there) copy(MatrixView(here, dtype_, shape_.rows, cols), x, stream);
  auto* const multiplier = reinterpret_cast<float*>(memory + layout_.multiplier);
  const QuantizedSpan out(shape_, bytes(layout_.codes), bytes(layout_.scales), multiplier, device_);
  quantize_rows(x, out, *method_,
                {.channels = channels,
                 .mse_codes = bytes(layout_.mse_codes),
                 .mse_scales = bytes(layout_.mse_scales),
                 .chosen = bytes(layout_.chosen),
                 .errors = reinterpret_cast<double*>(memory + layout_.candidates),
                 .gram = gram,
                 .workspace = memory + layout_.workspace},
                stream);
  auto* errors = reinterpret_cast<QuantizationError*>(memory + layout_.errors);
  for (std::int64_t i = 0; i * step_ < shape_.rows; ++i) {
    const QuantizedShape shape = part(i);
    const std::int64_t first = i * step_ * cols;
    error_parts_into(
        {static_cast<std::byte*>(x.data) + first * dtype_size(dtype_), dtype_, shape.rows, cols,
         cols, device_},
        {shape, out.codes + first / 2, out.scales + first / kBlock, multiplier, device_}, errors,
        stream);
    errors += errors_per_chunk(shape_, step_);
  }
  device_copy({}, result, layout_.result_bytes, device_, memory, layout_.result_bytes,
              layout_.result_bytes, 1, stream);
}

void DeviceRows::finish(std::byte* result,
                        const std::function<void(std::int64_t, EncodedChunk)>& finish) const {
  const auto part_of = [&](std::int64_t offset, std::int64_t size) {
    return std::span(result + offset, static_cast<std::size_t>(size));
  };
  const auto* errors = reinterpret_cast<const QuantizationError*>(result + layout_.errors);
  for (std::int64_t i = 0; i * step_ < shape_.rows; ++i) {
    const QuantizedShape shape = part(i);
    const std::int64_t row = i * step_, first = row * shape_.cols;
    EncodedChunk chunk{part_of(layout_.codes + first / 2, shape.code_bytes()),
                       part_of(layout_.scales + first / kBlock, shape.scale_bytes()),
                       {sum_parts({errors, static_cast<std::size_t>(error_part_count(shape))})}};
    if (method_->gram != nullptr)
      add_candidates(
          {reinterpret_cast<const std::uint8_t*>(result + layout_.chosen) + row,
           static_cast<std::size_t>(shape.rows)},
          reinterpret_cast<const double*>(result + layout_.candidates) + row * kGptqCandidates,
          method_->gram->factor, method_->global, chunk.outcome);
    errors += errors_per_chunk(shape_, step_);
    finish(i, std::move(chunk));
  }
}

}  // namespace nvfp4::checkpoint
