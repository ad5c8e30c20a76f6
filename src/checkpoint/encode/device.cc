#include "checkpoint/encode/device.h"

#include <algorithm>
#include <utility>

#include "checkpoint/io/grow.h"
#include "core/device_memory.h"
#include "core/stream_work.h"
#include "nvfp4/error.h"
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

/// The largest number of elements of a weight at a time. The workspace has 16 bytes for each.
constexpr std::int64_t kMostElements = std::int64_t{1} << 27;

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

std::int64_t DeviceGptq::most_rows(std::int64_t cols) {
  return std::max<std::int64_t>(kGptqPanel, kMostElements / cols);
}

void DeviceGptq::put(const GramSlot& gram) {
  if (triangle_ == gram.statistics->triangle) return;
  triangle_.reset();
  gram_ = {};  // Frees the memory before the next matrix needs it.
  gram_ = DeviceGram(gram.factor, device_, stream_->get());
  const auto bytes = static_cast<std::int64_t>(gram.factor.weights.size() * sizeof(float));
  weights_ = Buffer(bytes, device_);
  device_copy(device_, weights_.data(), bytes, {}, gram.factor.weights.data(), bytes, bytes, 1,
              stream_->get());
  triangle_ = gram.statistics->triangle;
}

void DeviceGptq::encode(const MatrixRows& rows, std::int64_t step, const RowsMethod& method,
                        Buffers& buffers,
                        const std::function<void(std::int64_t, EncodedChunk)>& finish) {
  const DType dtype = read_dtype(rows.source);
  const auto input = grow(buffers.input, rows.rows * rows.slice.cols * dtype_size(dtype));
  read_rows(rows, buffers.strip, input);
  const DeviceRows all(device_, dtype, rows.rows, rows.slice.cols, step, method);
  const DeviceLayout& layout = all.layout();
  std::byte* const result = grow(buffers.codes, layout.result_bytes).data();
  {
    const std::lock_guard lock(mutex_);
    if (!stream_) stream_.emplace(device_);
    StreamWork work(device_, stream_->get());
    put(*method.gram);
    if (layout.bytes > bytes_) {
      memory_ = {};
      bytes_ = 0;
      memory_ = Buffer(layout.bytes, device_);
      bytes_ = layout.bytes;
    }
    all.start(static_cast<std::byte*>(memory_.data()), input.data(), nullptr,
              {static_cast<const float*>(weights_.data()), method.channels().size()}, &gram_.view(),
              result, stream_->get());
    work.wait();
  }
  all.finish(result, finish);
}

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

DeviceLanes::DeviceLanes(Device device, const ChunkBytes& most, std::int64_t store, int count,
                         bool wait)
    : wait_(wait), maker_([=, this] { make(device, most, store, count); }) {}

DeviceLanes::~DeviceLanes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  maker_.join();
}

DeviceLanes::Lease::~Lease() {
  if (!lane_) return;
  const std::lock_guard lock(lanes_.mutex_);
  lanes_.free_.push_back(std::move(lane_));
  lanes_.changed_.notify_one();
}

void DeviceLanes::settle() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<DeviceLane>& lane : free_)
    for (DeviceSlot& slot : lane->slots) slot.settle();
}

void DeviceLanes::make(Device device, const ChunkBytes& most, std::int64_t store, int count) {
  for (int i = 0; i < count; ++i) {
    std::unique_ptr<DeviceLane> lane;
    std::exception_ptr failure;
    try {
      if (i == 0 && store > 0)
        for (Buffer& memory : stores_) memory = Buffer(store, device);
      lane = std::make_unique<DeviceLane>(device, most);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    if (lane) free_.push_back(std::move(lane));
    changed_.notify_all();
    if (failure_ || stop_) return;
  }
}

std::unique_ptr<DeviceLane> DeviceLanes::take() {
  std::unique_lock lock(mutex_);
  if (wait_) changed_.wait(lock, [&] { return !free_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  if (free_.empty()) return nullptr;
  std::unique_ptr<DeviceLane> lane = std::move(free_.back());
  free_.pop_back();
  return lane;
}

}  // namespace nvfp4::checkpoint
