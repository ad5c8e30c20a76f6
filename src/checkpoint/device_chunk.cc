#include "checkpoint/device_chunk.h"

#include <algorithm>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Of every part of a slot's memory.
constexpr std::int64_t kAlignment = 256;

/// The scales lie behind the codes, so that one copy brings both back.
std::int64_t scales_offset(const QuantizedShape& shape) {
  return round_up(shape.code_bytes(), kAlignment);
}

std::int64_t result_bytes(const QuantizedShape& shape) {
  return scales_offset(shape) + shape.scale_bytes();
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
  global_ = global;
  const MatrixSpan here(host_.data(), read_dtype(tensor), rows, slice.cols);
  x_ = here;
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
  options.global = {&global_, 1};
  options.stream = stream_.get();
  copy(here, x, options.stream);
  quantize_into(x, out, options);
  const std::int64_t result = result_bytes(shape_);
  device_copy({}, host_result(), result, device_, codes, result, result, 1, options.stream);
}

EncodedChunk DeviceSlot::finish(std::string_view backend) {
  synchronize(device_, stream_.get());
  running_ = false;
  std::byte* const codes = host_result();
  std::byte* const scales = codes + scales_offset(shape_);
  const QuantizedView q(shape_, reinterpret_cast<const std::uint8_t*>(codes),
                        reinterpret_cast<const std::uint8_t*>(scales), &global_.multiplier);
  return {{codes, static_cast<std::size_t>(shape_.code_bytes())},
          {scales, static_cast<std::size_t>(shape_.scale_bytes())},
          {quantization_error(x_, q, backend)}};
}

}  // namespace nvfp4::checkpoint
