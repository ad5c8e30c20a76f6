#include "checkpoint/encode/encoder.h"

#include <algorithm>
#include <optional>

#include "checkpoint/encode/fp8_chunk.h"
#include "checkpoint/encode/transcode.h"
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
  const ChunkBytes most = largest_chunk(plan);
  if (options_.device.type == DeviceType::cpu || most.input == 0) return;
  if (plan.method->needs == Needs::gram) {
    gram_library_ = gram_library(options_.device).invert_lower;
    gptq_ = std::make_unique<DeviceGptq>(options_.device);
  }
  std::int64_t store = 0;
  for (const Unit& unit : plan.units) store += bytes_on_device(plan, unit);
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
  if (const std::int64_t bytes = lanes_ && !leaving_ ? bytes_on_device(plan_, unit) : 0;
      bytes > 0 && window.stored_bytes + bytes <= kStoreBytes) {
    window.places[u] = {window.stored_bytes, unit.slice.amax_count};
    window.stored_bytes += bytes;
  }
  add_rows(window, u, unit);
  return grams_.add(window, unit);
}

void Encoder::add_rows(Window& window, std::size_t number, const Unit& unit) {
  const std::int64_t step = rows_per_chunk(unit);
  for (std::int64_t row = 0; row < unit.slice.rows; row += step)
    window.encode.push_back({number, row, std::min(step, unit.slice.rows - row)});
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
  window.amaxes[i] = unit.work == Work::transcode
                         ? measure_exponents(source, m.begin, m.count, *buffers)
                         : measure_chunk(source, m.begin, m.count, backend_, *buffers);
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

void Encoder::encode(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
                     const Finish& finish) {
  if (batch.by_gram) return by_gram(window, batch, globals, finish);
  std::optional<DeviceLanes::Lease> lane;
  if (lanes_) lane.emplace(*lanes_);
  std::vector<std::size_t> tasks;
  for (std::size_t i = batch.first; i < batch.last; ++i) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    if (lane && *lane && unit.work == Work::quantize && !weighs(unit)) {
      tasks.push_back(i);
      continue;
    }
    BufferPool::Lease buffers(pool_);
    EncodedChunk chunk = on_cpu(window, task, globals[unit.group], *buffers);
    if (weighs(unit))
      chunk.outcome.weighted_error = weighed(window, task, globals[unit.group], chunk);
    finish(i, std::move(chunk));
  }
  const auto slot = [&](std::size_t i) -> DeviceSlot& { return (*lane)->slots[i % 2]; };
  const auto begin = [&](std::size_t i) {
    const EncodeTask& task = window.encode[tasks[i]];
    const Unit& unit = plan_.units[task.unit];
    slot(i).begin(source_of(unit), unit.slice, task.row, task.rows,
                  method_of(window, unit, globals[unit.group]), place_of(window, task));
  };
  if (!tasks.empty()) begin(0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size()) begin(i + 1);
    finish(tasks[i], slot(i).finish());
  }
}

void Encoder::by_gram(const Window& window, const Batch& batch,
                      std::span<const GlobalScale> globals, const Finish& finish) {
  BufferPool::Lease buffers(pool_);
  const EncodeTask &first = window.encode[batch.first], &last = window.encode[batch.last - 1];
  const Unit& unit = plan_.units[first.unit];
  gptq_->encode(source_of(unit), unit.slice, first.row, last.row + last.rows - first.row,
                first.rows, method_of(window, unit, globals[unit.group]), *buffers,
                [&](std::int64_t chunk, EncodedChunk encoded) {
                  const std::size_t i = batch.first + static_cast<std::size_t>(chunk);
                  if (weighs(unit))
                    encoded.outcome.weighted_error =
                        weighed(window, window.encode[i], globals[unit.group], encoded);
                  finish(i, std::move(encoded));
                });
}

EncodedChunk Encoder::on_cpu(const Window& window, const EncodeTask& task,
                             const GlobalScale& global, Buffers& buffers) const {
  const Unit& unit = plan_.units[task.unit];
  const LogicalTensor& source = source_of(unit);
  switch (unit.work) {
    case Work::transcode:
      return transcode_chunk(source, unit.slice, task.row, task.rows, global, buffers);
    case Work::move:
      return move_chunk(source, unit.slice, moved_scales(unit, global), task.row, task.rows,
                        buffers);
    case Work::decode:
      return decode_chunk(plan_, unit, task.row, task.rows, options_.plain, buffers);
    case Work::fp8:
      return encode_fp8_chunk(source, unit, task.row, task.rows, global.multiplier, buffers);
    case Work::quantize:
      break;
  }
  return encode_chunk(source, unit.slice, task.row, task.rows, method_of(window, unit, global),
                      buffers);
}

bool Encoder::weighs(const Unit& unit) const {
  return options_.weigh_errors && (unit.work == Work::quantize || unit.work == Work::fp8);
}

/// Returns the weighted error of a chunk. It uses the Gram matrix if the unit is quantized by one,
/// otherwise its diagonal, which is exact for uncorrelated errors. A unit without statistics has
/// the mean square of the other inputs.
double Encoder::weighed(const Window& window, const EncodeTask& task, const GlobalScale& global,
                        const EncodedChunk& chunk) {
  const Unit& unit = plan_.units[task.unit];
  if (unit.statistics == nullptr) return mean_square_ * chunk.outcome.error.squared_error;
  if (factored_gram(window, unit) != nullptr)
    return input_weights_->share(*unit.statistics) * chunk.outcome.output.kept;
  return weighted_error(source_of(unit), unit, task.row, task.rows, chunk, global.multiplier,
                        input_weights_->of(*unit.statistics));
}

/// Returns the method with the data that it needs about the unit's inputs.
RowsMethod Encoder::method_of(const Window& window, const Unit& unit,
                              const GlobalScale& global) const {
  RowsMethod method{.quantizer = plan_.method->scales,
                    .global = global,
                    .gram = factored_gram(window, unit),
                    .sweeps = options_.sweeps,
                    .backend = options_.backend};
  if (plan_.method->needs != Needs::nothing && unit.statistics != nullptr && !method.gram)
    method.weights = plan_.statistics->weights(*unit.statistics);
  return method;
}

MovedScales Encoder::moved_scales(const Unit& unit, const GlobalScale& global) const {
  MovedScales scales = unit.moved;
  const float own = scales.global.multiplier;
  if (!plan_.groups[unit.group].moved_global) return scales;
  scales.global = global;
  scales.ratio *= own / scales.global.multiplier;
  scales.changes |= scales.ratio != 1;
  return scales;
}

}  // namespace nvfp4::checkpoint
