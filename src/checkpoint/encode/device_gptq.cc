#include "checkpoint/encode/device_gptq.h"

#include <algorithm>

#include "checkpoint/io/grow.h"
#include "nvfp4/runtime.h"
#include "ops/error_parts.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

/// Of a weight at a time; the workspace has 16 bytes for each.
constexpr std::int64_t kMostElements = std::int64_t{1} << 27;

}  // namespace

/// Where on the device everything lies, and on the host what comes back.
struct DeviceGptq::Parts {
  std::int64_t x = 0, mse_codes = 0, mse_scales = 0, workspace = 0;
  std::int64_t codes = 0, scales = 0, chosen = 0, candidates = 0, errors = 0, multiplier = 0;
  std::int64_t bytes = 0;

  Parts(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t chunks,
        std::int64_t parts_per_chunk, std::int64_t workspace_bytes) {
    const QuantizedShape shape{.rows = rows, .cols = cols};
    const auto take = [&](std::int64_t& offset, std::int64_t size) {
      offset = bytes;
      bytes += round_up(size, kDeviceAlignment);
    };
    // What comes back is first.
    take(codes, shape.code_bytes());
    take(scales, shape.scale_bytes());
    take(chosen, rows);
    take(candidates, rows * kGptqCandidates * static_cast<std::int64_t>(sizeof(double)));
    take(errors, chunks * parts_per_chunk * static_cast<std::int64_t>(sizeof(QuantizationError)));
    take(x, rows * cols * dtype_size(dtype));
    take(mse_codes, shape.code_bytes());
    take(mse_scales, shape.scale_bytes());
    take(multiplier, sizeof(float));
    take(workspace, workspace_bytes);
  }
  std::int64_t result_bytes() const { return x; }
};

std::int64_t DeviceGptq::most_rows(std::int64_t cols) {
  return std::max<std::int64_t>(kGptqPanel, kMostElements / cols);
}

void DeviceGptq::put(const GramSlot& gram) {
  if (triangle_ == gram.statistics->triangle) return;
  triangle_.reset();
  gram_ = {};  // before the next one needs room
  gram_ = DeviceGram(gram.factor, device_, stream_->get());
  const auto bytes = static_cast<std::int64_t>(gram.factor.weights.size() * sizeof(float));
  weights_ = Buffer(bytes, device_);
  device_copy(device_, weights_.data(), bytes, {}, gram.factor.weights.data(), bytes, bytes, 1,
              stream_->get());
  triangle_ = gram.statistics->triangle;
}

void DeviceGptq::encode(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                        std::int64_t rows, std::int64_t step, const GlobalScale& global,
                        const GramSlot& gram, Buffers& buffers,
                        const std::function<void(std::int64_t, EncodedChunk)>& finish) {
  const DType dtype = read_dtype(tensor);
  const std::int64_t cols = slice.cols, chunks = ceil_div(rows, step);
  const auto input = grow(buffers.input, rows * cols * dtype_size(dtype));
  read_rows(tensor, slice, row, rows, buffers.strip, input);

  const auto shape_of = [&](std::int64_t n) { return QuantizedShape{.rows = n, .cols = cols}; };
  const std::int64_t parts = error_part_count(shape_of(std::min(step, rows)));
  const DeviceBackend& backend = device_backend(device_);
  const Parts at(dtype, rows, cols, chunks, parts, backend.gptq_workspace(rows, cols));
  const auto result = grow(buffers.codes, at.result_bytes());
  const auto rows_of = [&](std::int64_t i) { return std::min(step, rows - i * step); };
  {
    const std::lock_guard lock(mutex_);
    if (!stream_) stream_.emplace(device_);
    put(gram);
    if (at.bytes > bytes_) {
      memory_ = {};
      bytes_ = 0;
      memory_ = Buffer(at.bytes, device_);
      bytes_ = at.bytes;
    }
    auto* const memory = static_cast<std::byte*>(memory_.data());
    const auto bytes = [&](std::int64_t offset) {
      return reinterpret_cast<std::uint8_t*>(memory + offset);
    };
    auto* const multiplier = reinterpret_cast<float*>(memory + at.multiplier);
    const MatrixSpan x(memory + at.x, dtype, rows, cols, cols, device_);
    copy(MatrixView(input.data(), dtype, rows, cols), x, stream_->get());
    const QuantizedSpan mse(shape_of(rows), bytes(at.mse_codes), bytes(at.mse_scales), multiplier,
                            device_);
    const QuantizedSpan out(shape_of(rows), bytes(at.codes), bytes(at.scales), multiplier, device_);
    QuantizeOptions by_block;
    by_block.quantizer = Quantizer::mse;
    by_block.global = {&global, 1};
    by_block.stream = stream_->get();
    quantize_into(x, mse, by_block);
    by_block.weights = {static_cast<const float*>(weights_.data()), gram.factor.weights.size()};
    quantize_into(x, out, by_block);
    backend.gptq({.gram = gram_.view(),
                  .x = x,
                  .divisor = global.divisor,
                  .sweeps = sweeps_,
                  .mse_codes = mse.codes,
                  .mse_scales = mse.scales,
                  .codes = out.codes,
                  .scales = out.scales,
                  .chosen = bytes(at.chosen),
                  .errors = reinterpret_cast<double*>(memory + at.candidates),
                  .workspace = memory + at.workspace,
                  .stream = stream_->get()});
    auto* const errors = reinterpret_cast<QuantizationError*>(memory + at.errors);
    for (std::int64_t i = 0; i < chunks; ++i) {
      const QuantizedShape shape = shape_of(rows_of(i));
      const std::int64_t first = i * step * cols;
      error_parts_into(
          {memory + at.x + first * dtype_size(dtype), dtype, shape.rows, cols, cols, device_},
          {shape, out.codes + first / 2, out.scales + first / kBlock, multiplier, device_},
          errors + i * parts, stream_->get());
    }
    device_copy({}, result.data(), at.result_bytes(), device_, memory, at.result_bytes(),
                at.result_bytes(), 1, stream_->get());
    synchronize(device_, stream_->get());
  }
  const auto part = [&](std::int64_t offset, std::int64_t size) {
    return result.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  };
  for (std::int64_t i = 0; i < chunks; ++i) {
    const QuantizedShape shape = shape_of(rows_of(i));
    const std::int64_t first = i * step;
    const auto* const errors =
        reinterpret_cast<const QuantizationError*>(result.data() + at.errors) + i * parts;
    EncodedChunk chunk{part(at.codes + first * cols / 2, shape.code_bytes()),
                       part(at.scales + first * cols / kBlock, shape.scale_bytes()),
                       {sum_parts({errors, static_cast<std::size_t>(error_part_count(shape))})}};
    add_candidates(
        {reinterpret_cast<const std::uint8_t*>(result.data()) + at.chosen + first,
         static_cast<std::size_t>(shape.rows)},
        reinterpret_cast<const double*>(result.data() + at.candidates) + first * kGptqCandidates,
        gram.factor, global, chunk.outcome);
    finish(i, std::move(chunk));
  }
}

}  // namespace nvfp4::checkpoint
