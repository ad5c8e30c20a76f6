#include "checkpoint/encode/device_chunk.h"

#include <algorithm>

#include "nvfp4/error.h"

namespace nvfp4::checkpoint {

void ChunkBytes::add(const MatrixRows& chunk, bool weighted) {
  const QuantizedShape shape{.rows = chunk.rows, .cols = chunk.slice.cols};
  const DType dtype = read_dtype(chunk.source);
  const std::int64_t elements =
      std::max(shape.rows * shape.cols,
               std::min(elements_per_measure(chunk.source), chunk.slice.amax_count));
  input = std::max(input, elements * dtype_size(dtype));
  result = std::max(result, DeviceLayout(dtype, shape, shape.rows, 0).result_bytes);
  if (weighted) weights = std::max(weights, shape.cols * dtype_size(DType::f32));
}

std::int64_t bytes_on_device(const LogicalTensor& source, const WeightSlice& s) {
  const bool as_measured = s.col_stride == 1 && s.row_stride == s.cols &&
                           s.amax_begin == s.offset && s.amax_count == s.rows * s.cols;
  if (!source.is_stored() || !as_measured) return 0;
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
    // The error that stopped the run has priority; this one may be the same.
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
  std::byte* const here = host_input();
  const AmaxResult result =
      measure_chunk(tensor, begin, count, backend, {here, static_cast<std::size_t>(bytes)});
  running_ = true;
  device_copy(device_, there, bytes, {}, here, bytes, bytes, 1, stream_.get());
  return result;
}

void DeviceSlot::begin(const MatrixRows& rows, RowsMethod method, std::byte* there) {
  settle();  // A chunk that was abandoned may still run.
  running_ = true;
  method_ = std::move(method);
  const DType dtype = read_dtype(rows.source);
  const std::int64_t cols = rows.slice.cols;
  rows_.emplace(device_, dtype, rows.rows, cols, rows.rows, method_);
  auto* const memory = static_cast<std::byte*>(memory_.data());
  if (there == nullptr)
    read_rows(rows, strip_,
              {host_input(), static_cast<std::size_t>(rows.rows * cols * dtype_size(dtype))});
  auto* const channels = reinterpret_cast<float*>(memory + rows_->layout().channels);
  if (const std::vector<float>& weights = method_.weights; !weights.empty()) {
    auto* const here = reinterpret_cast<float*>(host_result() + result_bytes_);
    std::ranges::copy(weights, here);
    const auto bytes = static_cast<std::int64_t>(weights.size() * sizeof(float));
    device_copy(device_, channels, bytes, {}, here, bytes, bytes, 1, stream_.get());
  }
  rows_->start(memory, host_input(), there, {channels, method_.weights.size()}, nullptr,
               host_result(), stream_.get());
}

EncodedChunk DeviceSlot::finish() {
  synchronize(device_, stream_.get());
  running_ = false;
  EncodedChunk whole;
  rows_->finish(host_result(), [&](std::int64_t, EncodedChunk chunk) { whole = std::move(chunk); });
  return whole;
}

}  // namespace nvfp4::checkpoint
