#include "checkpoint/device_chunk.h"

#include <algorithm>

#include "nvfp4/error.h"
#include "ops/error_parts.h"

namespace nvfp4::checkpoint {
namespace {

/// Of every part of a slot's memory.
constexpr std::int64_t kAlignment = 256;

/// The scales lie behind the codes and the errors behind those, so that one copy brings all back.
std::int64_t scales_offset(const QuantizedShape& shape) {
  return round_up(shape.code_bytes(), kAlignment);
}

std::int64_t errors_offset(const QuantizedShape& shape) {
  return scales_offset(shape) + round_up(shape.scale_bytes(), kAlignment);
}

std::int64_t result_bytes(const QuantizedShape& shape) {
  return errors_offset(shape) +
         error_part_count(shape) * static_cast<std::int64_t>(sizeof(QuantizationError));
}

}  // namespace

ChunkBytes largest_chunk(const Plan& plan) {
  ChunkBytes most;
  for (const Unit& unit : plan.units) {
    if (unit.work != Work::quantize) continue;
    const QuantizedShape shape{.rows = rows_per_chunk(unit), .cols = unit.slice.cols};
    const DType dtype = read_dtype(*plan.tensors[unit.tensor].source);
    most.input = std::max(most.input, shape.rows * shape.cols * dtype_size(dtype));
    most.result = std::max(most.result, result_bytes(shape));
  }
  return most;
}

DeviceSlot::DeviceSlot(Device device, const ChunkBytes& most)
    : device_(device),
      input_bytes_(round_up(most.input, kAlignment)),
      result_bytes_(round_up(most.result, kAlignment)),
      host_(device, input_bytes_ + result_bytes_),
      memory_(input_bytes_ + result_bytes_ + kAlignment, device),
      stream_(device) {}

DeviceSlot::~DeviceSlot() {
  if (!running_) return;
  try {
    synchronize(device_, stream_.get());
  } catch (const Error&) {
    // The error that stopped the run was another one, or is the same.
  }
}

void DeviceSlot::begin(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                       std::int64_t rows, Quantizer quantizer, const GlobalScale& global) {
  if (running_) synchronize(device_, stream_.get());  // a chunk that was given up
  running_ = true;
  shape_ = {.rows = rows, .cols = slice.cols};
  const MatrixSpan here(host_.data(), read_dtype(tensor), rows, slice.cols);
  const std::int64_t bytes = here.size() * dtype_size(here.dtype);
  read_rows(tensor, slice, row, rows, strip_,
            {static_cast<std::byte*>(here.data), static_cast<std::size_t>(bytes)});

  auto* const memory = static_cast<std::uint8_t*>(memory_.data());
  std::uint8_t* const codes = memory + input_bytes_;
  const MatrixSpan x(memory, here.dtype, rows, slice.cols, slice.cols, device_);
  const QuantizedSpan out(shape_, codes, codes + scales_offset(shape_),
                          reinterpret_cast<float*>(codes + result_bytes_), device_);
  QuantizeOptions options;
  options.quantizer = quantizer;
  options.global = {&global, 1};
  options.stream = stream_.get();
  copy(here, x, options.stream);
  quantize_into(x, out, options);
  error_parts_into(x, out, reinterpret_cast<QuantizationError*>(codes + errors_offset(shape_)),
                   options.stream);
  const std::int64_t result = result_bytes(shape_);
  device_copy({}, host_result(), result, device_, codes, result, result, 1, options.stream);
}

EncodedChunk DeviceSlot::finish() {
  synchronize(device_, stream_.get());
  running_ = false;
  std::byte* const codes = host_result();
  const auto* const errors =
      reinterpret_cast<const QuantizationError*>(codes + errors_offset(shape_));
  return {{codes, static_cast<std::size_t>(shape_.code_bytes())},
          {codes + scales_offset(shape_), static_cast<std::size_t>(shape_.scale_bytes())},
          {sum_parts({errors, static_cast<std::size_t>(error_part_count(shape_))})}};
}

}  // namespace nvfp4::checkpoint
