#include "checkpoint/encode/device_chunk.h"

#include <algorithm>

#include "nvfp4/error.h"
#include "ops/error_parts.h"

namespace nvfp4::checkpoint {
namespace {

/// The scales lie behind the codes and the errors behind those, so that one copy brings all back.
std::int64_t scales_offset(const QuantizedShape& shape) {
  return round_up(shape.code_bytes(), kDeviceAlignment);
}

std::int64_t errors_offset(const QuantizedShape& shape) {
  return scales_offset(shape) + round_up(shape.scale_bytes(), kDeviceAlignment);
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
    const LogicalTensor& source = *plan.tensors[unit.tensor].source;
    const DType dtype = read_dtype(source);
    const std::int64_t elements = std::max(
        shape.rows * shape.cols, std::min(elements_per_measure(source), unit.slice.amax_count));
    most.input = std::max(most.input, elements * dtype_size(dtype));
    most.result = std::max(most.result, result_bytes(shape));
    if (unit.statistics != nullptr)
      most.weights = std::max(most.weights, shape.cols * dtype_size(DType::f32));
  }
  return most;
}

std::int64_t bytes_on_device(const Plan& plan, const Unit& unit) {
  const LogicalTensor& source = *plan.tensors[unit.tensor].source;
  const WeightSlice& s = unit.slice;
  const bool as_measured = s.col_stride == 1 && s.row_stride == s.cols &&
                           s.amax_begin == s.offset && s.amax_count == s.rows * s.cols;
  if (unit.work != Work::quantize || !source.is_stored() || !as_measured) return 0;
  return round_up(s.amax_count * dtype_size(read_dtype(source)), kDeviceAlignment);
}

DeviceSlot::DeviceSlot(Device device, const ChunkBytes& most)
    : device_(device),
      input_bytes_(round_up(most.input, kDeviceAlignment)),
      result_bytes_(round_up(most.result, kDeviceAlignment)),
      weights_bytes_(round_up(most.weights, kDeviceAlignment)),
      host_(device, input_bytes_ + result_bytes_ + weights_bytes_),
      memory_(input_bytes_ + result_bytes_ + weights_bytes_ + kDeviceAlignment, device),
      stream_(device) {}

DeviceSlot::~DeviceSlot() {
  if (!running_) return;
  try {
    synchronize(device_, stream_.get());
  } catch (const Error&) {
    // The error that stopped the run was another one, or is the same.
  }
}

void DeviceSlot::settle() {
  if (!running_) return;
  synchronize(device_, stream_.get());
  running_ = false;
}

AmaxResult DeviceSlot::measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                               const Backend& backend, std::byte* there) {
  settle();
  const std::int64_t bytes = count * dtype_size(read_dtype(tensor));
  auto* const here = static_cast<std::byte*>(host_.data());
  const AmaxResult result =
      measure_chunk(tensor, begin, count, backend, {here, static_cast<std::size_t>(bytes)});
  running_ = true;
  device_copy(device_, there, bytes, {}, here, bytes, bytes, 1, stream_.get());
  return result;
}

void DeviceSlot::begin(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                       std::int64_t rows, QuantizeOptions options, std::byte* there) {
  settle();  // or a chunk that was given up
  running_ = true;
  shape_ = {.rows = rows, .cols = slice.cols};
  const DType dtype = read_dtype(tensor);
  auto* const memory = static_cast<std::uint8_t*>(memory_.data());
  std::uint8_t* const codes = memory + input_bytes_;
  const MatrixSpan x(there ? static_cast<void*>(there) : memory, dtype, rows, slice.cols,
                     slice.cols, device_);
  if (there == nullptr) {
    const MatrixSpan here(host_.data(), dtype, rows, slice.cols);
    const std::int64_t bytes = here.size() * dtype_size(dtype);
    read_rows(tensor, slice, row, rows, strip_,
              {static_cast<std::byte*>(here.data), static_cast<std::size_t>(bytes)});
    copy(here, x, stream_.get());
  }
  const QuantizedSpan out(shape_, codes, codes + scales_offset(shape_),
                          reinterpret_cast<float*>(codes + result_bytes_ + weights_bytes_),
                          device_);
  options.stream = stream_.get();
  if (!options.weights.empty()) {
    auto* const there_weights = reinterpret_cast<float*>(codes + result_bytes_);
    auto* const here_weights = reinterpret_cast<float*>(host_result() + result_bytes_);
    std::ranges::copy(options.weights, here_weights);
    const auto bytes = static_cast<std::int64_t>(options.weights.size_bytes());
    device_copy(device_, there_weights, bytes, {}, here_weights, bytes, bytes, 1, options.stream);
    options.weights = {there_weights, options.weights.size()};
  }
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
