#include "checkpoint/encode/device_gptq.h"

#include <algorithm>

#include "checkpoint/io/grow.h"
#include "core/stream_work.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

/// The largest number of elements of a weight at a time. The workspace has 16 bytes for each.
constexpr std::int64_t kMostElements = std::int64_t{1} << 27;

}  // namespace

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

}  // namespace nvfp4::checkpoint
