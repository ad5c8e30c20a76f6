#include "checkpoint/encode/encoder.h"

#include <algorithm>
#include <optional>

#include "nvfp4/runtime.h"
#include "ops/gram_library.h"

namespace nvfp4::checkpoint {
namespace {

/// The size of a device store. Measured input stays there until it is encoded: a window of the
/// largest matrices of most models. Input that does not fit is read again.
constexpr std::int64_t kStoreBytes = std::int64_t{256} << 20;
/// The number of chunks that one thread encodes on a device in a row. While the device works on
/// one, another is written or read.
constexpr std::size_t kChunksInARow = 8;

}  // namespace

Encoder::Encoder(const Plan& plan, EncoderOptions options)
    : plan_(plan),
      options_(std::move(options)),
      backend_(find_backend(options_.backend)),
      grams_(plan) {
  if (options_.weigh_errors) prepare_weights();
  if (options_.device.type == DeviceType::cpu) return;
  ChunkBytes most;
  std::int64_t store = 0;
  for (const Unit& unit : plan.units) {
    if (!unit.as<QuantizeWork>()) continue;
    most.add({source_of(unit), unit.slice, 0, unit.work().rows_per_chunk(unit.slice)},
             unit.statistics != nullptr);
    store += bytes_on_device(source_of(unit), unit.slice);
  }
  if (most.input == 0) return;
  if (plan.method->needs == Needs::gram) {
    gram_library_ = gram_library(options_.device).invert_lower;
    gptq_ = std::make_unique<DeviceGptq>(options_.device);
  }
  lanes_ = std::make_unique<DeviceLanes>(options_.device, most, std::min(store, kStoreBytes),
                                         std::min(threads(), DeviceLanes::kMostUseful),
                                         options_.wait_for_device);
}

void Encoder::prepare_weights() {
  input_weights_.emplace(*plan_.statistics, plan_.method->needs == Needs::gram);
  double known = 0;
  for (const Unit& unit : plan_.units) {
    if (unit.statistics == nullptr) continue;
    mean_square_ += plan_.statistics->mean_square(*unit.statistics);
    ++known;
  }
  if (known > 0) mean_square_ /= known;
}

void Encoder::release_device() {
  if (!leaving_ || !lanes_) return;
  releasing_ = std::async(std::launch::async, [lanes = std::move(lanes_), this]() mutable {
    lanes.reset();
    device_reset(options_.device);
  });
}

const LogicalTensor& Encoder::source_of(const Unit& unit) const {
  return *plan_.tensors[unit.tensor].source;
}

std::uint64_t Encoder::add(Window& window, std::size_t u) {
  const Unit& unit = plan_.units[u];
  window.units.push_back(u);
  const bool on_device = lanes_ && !leaving_ && unit.as<QuantizeWork>();
  if (const std::int64_t bytes = on_device ? bytes_on_device(source_of(unit), unit.slice) : 0;
      bytes > 0 && window.stored_bytes + bytes <= kStoreBytes) {
    window.places[u] = {window.stored_bytes, unit.slice.amax_count};
    window.stored_bytes += bytes;
  }
  const std::int64_t step = unit.work().rows_per_chunk(unit.slice);
  for (std::int64_t row = 0; row < unit.slice.rows; row += step)
    window.encode.push_back({u, row, std::min(step, unit.slice.rows - row)});
  return grams_.add(window, unit);
}

void Encoder::fill(const Window& window, std::size_t i) const {
  fill_gram_slot(*plan_.statistics, options_.backend, gram_library_, *window.unfilled[i]);
}

void Encoder::measure(Window& window, std::size_t i) {
  const MeasureTask& m = window.measure[i];
  const Unit& unit = plan_.units[m.unit];
  const LogicalTensor& source = source_of(unit);
  if (const auto place = window.places.find(m.unit); place != window.places.end())
    if (DeviceLanes::Lease lane(*lanes_); lane) {
      const std::int64_t at = (m.begin - unit.slice.offset) * dtype_size(read_dtype(source));
      window.amaxes[i] = lane->slots[lane->turn ^= 1].measure(
          source, m.begin, m.count, backend_,
          lanes_->store(window.store) + place->second.offset + at);
      window.uploaded[i] = true;
      return;
    }
  BufferPool::Lease buffers(pool_);
  window.amaxes[i] = unit.work().measure(source, m.begin, m.count, backend_, *buffers);
}

/// Counts the uploaded elements of each place.
void Encoder::settle(Window& window) {
  if (!lanes_) return;
  lanes_->settle();
  for (std::size_t i = 0; i < window.measure.size(); ++i)
    if (window.uploaded[i])
      window.places[window.measure[i].unit].missing -= window.measure[i].count;
}

/// Returns the address of the task's rows on the device, or null if they are not there.
std::byte* Encoder::place_of(const Window& window, const EncodeTask& task) const {
  const auto place = window.places.find(task.unit);
  if (place == window.places.end() || place->second.missing > 0) return nullptr;
  const Unit& unit = plan_.units[task.unit];
  return lanes_->store(window.store) + place->second.offset +
         task.row * unit.slice.cols * dtype_size(read_dtype(source_of(unit)));
}

/// Returns the unit's factored Gram matrix. Returns null if the method needs none, or if all inputs
/// were zero.
const GramSlot* Encoder::factored_gram(const Window& window, const Unit& unit) const {
  const GramSlot* gram = grams_.of(window, unit);
  return gram != nullptr && gram->factor.depth > 0 ? gram : nullptr;
}

std::vector<Batch> Encoder::batches(const Window& window) const {
  const std::size_t in_a_row = lanes_ ? kChunksInARow : 1;
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < window.encode.size(); ++i) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    const bool by_gram = gptq_ && factored_gram(window, unit) != nullptr;
    if (!batches.empty() && batches.back().by_gram == by_gram) {
      Batch& batch = batches.back();
      const EncodeTask& first = window.encode[batch.first];
      const bool joins = by_gram
                             ? first.unit == task.unit && task.row + task.rows - first.row <=
                                                              DeviceGptq::most_rows(unit.slice.cols)
                             : i - batch.first < in_a_row;
      if (joins) {
        batch.last = i + 1;
        continue;
      }
    }
    batches.push_back({i, i + 1, by_gram});
  }
  return batches;
}

MatrixRows Encoder::rows_of(const EncodeTask& task) const {
  const Unit& unit = plan_.units[task.unit];
  return {source_of(unit), unit.slice, task.row, task.rows,
          unit.second == kNone ? nullptr : plan_.tensors[unit.second].source};
}

void Encoder::encode(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
                     const Finish& finish) {
  if (batch.by_gram) return by_gram(window, batch, globals, finish);
  std::optional<DeviceLanes::Lease> lane;
  if (lanes_) lane.emplace(*lanes_);
  std::vector<std::size_t> tasks;
  for (std::size_t i = batch.first; i < batch.last; ++i) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    if (lane && *lane && !options_.weigh_errors && unit.as<QuantizeWork>()) {
      tasks.push_back(i);
      continue;
    }
    BufferPool::Lease buffers(pool_);
    const RowsMethod method = method_of(window, unit, globals);
    EncodedChunk chunk = unit.work().encode(rows_of(task), method, *buffers);
    compare(task, method, chunk);
    weigh(window, task, method.global.multiplier, chunk);
    finish(i, std::move(chunk));
  }
  const auto slot = [&](std::size_t i) -> DeviceSlot& { return (*lane)->slots[i % 2]; };
  const auto begin = [&](std::size_t i) {
    const EncodeTask& task = window.encode[tasks[i]];
    slot(i).begin(rows_of(task), method_of(window, plan_.units[task.unit], globals),
                  place_of(window, task));
  };
  if (!tasks.empty()) begin(0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size()) begin(i + 1);
    const EncodeTask& task = window.encode[tasks[i]];
    EncodedChunk chunk = slot(i).finish();
    compare(task, method_of(window, plan_.units[task.unit], globals), chunk);
    finish(tasks[i], std::move(chunk));
  }
}

void Encoder::by_gram(const Window& window, const Batch& batch,
                      std::span<const GlobalScale> globals, const Finish& finish) {
  BufferPool::Lease buffers(pool_);
  const EncodeTask &first = window.encode[batch.first], &last = window.encode[batch.last - 1];
  const RowsMethod method = method_of(window, plan_.units[first.unit], globals);
  MatrixRows rows = rows_of(first);
  rows.rows = last.row + last.rows - first.row;
  gptq_->encode(rows, first.rows, method, *buffers, [&](std::int64_t chunk, EncodedChunk encoded) {
    const std::size_t i = batch.first + static_cast<std::size_t>(chunk);
    weigh(window, window.encode[i], method.global.multiplier, encoded);
    finish(i, std::move(encoded));
  });
}

/// Sets the error that a global scale would give, for a format that has none.
void Encoder::compare(const EncodeTask& task, const RowsMethod& method, EncodedChunk& chunk) {
  const Unit& unit = plan_.units[task.unit];
  const auto* work = unit.as<QuantizeWork>();
  if (work == nullptr || work->output().has_global || method.gram != nullptr) return;
  if (source_of(unit).is_four_bits()) return;  // with a global scale it would be copied
  BufferPool::Lease buffers(pool_);
  chunk.outcome.error_with_global =
      static_cast<float>(work->error_with_global(rows_of(task), method, *buffers));
}

/// Sets the weighted error of a chunk, if it is requested. It uses the Gram matrix if the unit is
/// quantized by one, otherwise its diagonal, which is exact for uncorrelated errors. A unit without
/// statistics has the mean square of the other inputs.
void Encoder::weigh(const Window& window, const EncodeTask& task, float global,
                    EncodedChunk& chunk) {
  if (!options_.weigh_errors) return;
  const Unit& unit = plan_.units[task.unit];
  Outcome& outcome = chunk.outcome;
  if (unit.statistics == nullptr)
    outcome.weighted_error = mean_square_ * outcome.error.squared_error;
  else if (factored_gram(window, unit) != nullptr)
    outcome.weighted_error = input_weights_->share(*unit.statistics) * outcome.output.kept;
  else
    outcome.weighted_error = unit.work().weighted_error(rows_of(task), chunk, global,
                                                        input_weights_->of(*unit.statistics));
}

/// Returns the group's global scale, and the data that the method needs about the unit's inputs.
RowsMethod Encoder::method_of(const Window& window, const Unit& unit,
                              std::span<const GlobalScale> globals) const {
  RowsMethod method{.quantizer = plan_.method->scales,
                    .global = unit.group == kNone ? GlobalScale() : globals[unit.group],
                    .gram = factored_gram(window, unit),
                    .sweeps = options_.sweeps,
                    .backend = options_.backend};
  if (plan_.method->needs != Needs::nothing && unit.statistics != nullptr && !method.gram &&
      unit.as<QuantizeWork>())
    method.weights = plan_.statistics->weights(*unit.statistics);
  return method;
}

}  // namespace nvfp4::checkpoint
