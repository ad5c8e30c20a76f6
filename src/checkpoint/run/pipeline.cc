#include "checkpoint/run/pipeline.h"

#include <future>
#include <memory>
#include <optional>
#include <set>

#include "checkpoint/encode/batches.h"
#include "checkpoint/encode/device_gptq.h"
#include "checkpoint/encode/device_lanes.h"
#include "checkpoint/encode/gram_slots.h"
#include "checkpoint/encode/read_ahead.h"
#include "checkpoint/encode/transcode.h"
#include "checkpoint/encode/unit_encoder.h"
#include "checkpoint/encode/window.h"
#include "checkpoint/run/progress_count.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/runtime.h"

namespace nvfp4::checkpoint {
namespace {

/// Input that is measured and, unless a device keeps it, read again: it stays in the page cache.
constexpr std::uint64_t kWindowBytes = 100 << 20;
constexpr std::uint64_t kCopyBytes = 1 << 20;
/// Of what is measured, and kept on a device until it is encoded: a window of the largest matrices
/// of most models. What has no room is read again.
constexpr std::int64_t kStoreBytes = std::int64_t{256} << 20;
/// Chunks that one thread brings through a device: while that works on one, another is written, or
/// read if it is not there yet.
constexpr std::size_t kChunksInARow = 8;
/// Input, at the most, that the CPU encodes while the device is released, which takes as long.
constexpr std::uint64_t kReleaseBytes = 400 << 20;

class Pipeline {
 public:
  Pipeline(const Plan& plan, const TransformOptions& options, const Container* container)
      : plan_(plan),
        options_(options),
        container_(container),
        backend_(find_backend(options.backend)),
        encoder_(plan, {options.quantizer, &method_of(options), options.plain, options.backend,
                        options.sweeps}),
        grams_(plan, method_of(options)),
        globals_(plan.groups.size()),
        scheduled_(plan.groups.size()),
        outcomes_(plan.tensors.size()),
        progress_(plan, options.progress) {
    const ChunkBytes most = largest_chunk(plan);
    if (options.device.type == DeviceType::cpu || most.input == 0) return;
    if (method_of(options).needs == Needs::gram)
      gptq_ = std::make_unique<DeviceGptq>(options.device, options.sweeps);
    std::int64_t store = 0;
    for (const Unit& unit : plan.units) store += bytes_on_device(plan, unit);
    lanes_ = std::make_unique<DeviceLanes>(options.device, most, std::min(store, kStoreBytes),
                                           std::min(threads(), DeviceLanes::kMostUseful),
                                           options.wait_for_device);
  }

  std::vector<Outcome> run(
      const std::filesystem::path& output, const std::vector<bool>& done,
      const std::function<void(std::size_t, const std::vector<Outcome>&)>& before_commit) {
    done_ = &done;
    progress_.start(done);
    ahead_.emplace(plan_, done);
    std::future<void> committing;
    std::unique_ptr<ShardWriter> writer;
    // In the background too: to reserve a gigabyte takes a tenth of a second in some file systems.
    std::future<std::unique_ptr<ShardWriter>> opening;
    const auto open_next = [&](std::size_t shard) {
      while (shard < done.size() && done[shard]) ++shard;
      if (shard == done.size()) return;
      opening = std::async(std::launch::async,
                           [&, shard] { return open_shard(plan_.shards[shard], output); });
    };
    const auto commit = [&](std::size_t shard) {
      if (committing.valid()) committing.get();
      // In the background: fsync waits for the disk while the next shard is computed.
      committing = std::async(std::launch::async, [&, shard, w = std::move(writer)]() mutable {
        check_inputs(shard);
        before_commit(shard, outcomes_);
        w->commit();
      });
    };

    open_next(0);
    std::optional<Window> now = next_window();
    if (now) run_tasks(nullptr, nullptr, &*now);
    while (now) {
      if (!writer) {
        writer = opening.get();
        open_next(now->shard + 1);
      }
      last_of_device_ |= is_end();
      std::optional<Window> next = next_window();
      write_globals(*now, *writer);
      run_tasks(&*now, &*writer, next ? &*next : nullptr);
      if (last_of_device_ && lanes_) release_device();
      add_outcomes(*now);
      if (!next || next->shard != now->shard) commit(now->shard);
      now = std::move(next);
    }
    if (committing.valid()) committing.get();
    return std::move(outcomes_);
  }

 private:
  /// Whether what no window has yet is for the CPU.
  bool is_end() const {
    const std::uint64_t end = std::min(kReleaseBytes, progress_.bytes_total() / 4);
    return options_.release_device && !gptq_ && bytes_given_ + end >= progress_.bytes_total();
  }

  void release_device() {
    releasing_ = std::async(std::launch::async, [lanes = std::move(lanes_), this]() mutable {
      lanes.reset();
      device_reset(options_.device);
    });
  }

  std::unique_ptr<ShardWriter> open_shard(const PlannedShard& shard,
                                          const std::filesystem::path& output) const {
    if (container_ != nullptr) return container_->open(output);
    return safetensors_shard(shard, output / shard.file);
  }

  const LogicalTensor& source_of(const Unit& u) const { return *plan_.tensors[u.tensor].source; }

  /// The next unwritten part of the model, of one shard.
  std::optional<Window> next_window() {
    while (shard_ < plan_.shards.size() && ((*done_)[shard_] || plan_.shards[shard_].tensors == 0 ||
                                            position_ == plan_.shards[shard_].tensors)) {
      if (!(*done_)[shard_] && plan_.shards[shard_].tensors == 0 && !empty_given_) {
        empty_given_ = true;  // a shard without tensors is a file too
        return Window(shard_);
      }
      ++shard_;
      position_ = 0;
      empty_given_ = false;
    }
    if (shard_ == plan_.shards.size()) return std::nullopt;
    Window window(shard_);
    window.store = store_ = 1 - store_;
    const PlannedShard& shard = plan_.shards[shard_];
    std::uint64_t bytes = 0;
    while (position_ < shard.tensors && bytes < kWindowBytes) {
      const std::size_t t = shard.first_tensor + position_;
      const PlannedTensor& tensor = plan_.tensors[t];
      if (tensor.copy != kNone) {
        const std::uint64_t n = std::min(tensor.stored.info->bytes - part_, kWindowBytes);
        add_copy(window, t, part_, n);
        bytes += n;
        part_ += n;
        if (part_ < tensor.stored.info->bytes) continue;
      } else if (tensor.units > 0) {
        const std::size_t u = tensor.first_unit + part_;
        bytes += add_unit(window, u);
        if (++part_ < tensor.units) continue;
      }
      ++position_;
      part_ = 0;
    }
    bytes_given_ += bytes;
    ahead_->advance(bytes_given_);
    window.amaxes.resize(window.measure.size());
    window.outcomes.resize(window.encode.size());
    window.uploaded.resize(window.measure.size());
    return window;
  }

  static void add_copy(Window& window, std::size_t tensor, std::uint64_t begin, std::uint64_t n) {
    if (n == 0) window.copy.push_back({tensor, begin, 0});  // it still counts as a tensor
    for (std::uint64_t at = 0; at < n; at += kCopyBytes)
      window.copy.push_back({tensor, begin + at, std::min(kCopyBytes, n - at)});
  }

  std::uint64_t add_unit(Window& window, std::size_t u) {
    const Unit& unit = plan_.units[u];
    window.units.push_back(u);
    if (const std::int64_t bytes = lanes_ && !last_of_device_ ? bytes_on_device(plan_, unit) : 0;
        bytes > 0 && window.stored_bytes + bytes <= kStoreBytes) {
      window.places[u] = {window.stored_bytes, unit.slice.amax_count};
      window.stored_bytes += bytes;
    }
    const std::int64_t step = rows_per_chunk(unit);
    for (std::int64_t row = 0; row < unit.slice.rows; row += step)
      window.encode.push_back({u, row, std::min(step, unit.slice.rows - row)});
    const Group& group = plan_.groups[unit.group];
    const bool measured = group.work == Work::quantize || group.work == Work::transcode;
    if (measured && !scheduled_[unit.group]) {
      scheduled_[unit.group] = true;
      for (const std::size_t member : group.units) add_measure(window, member);
    }
    return input_bytes(plan_, unit) + grams_.add(window, unit);
  }

  void add_measure(Window& window, std::size_t u) {
    const Unit& unit = plan_.units[u];
    if (unit.work == Work::move) return;
    const std::int64_t step = elements_per_measure(source_of(unit));
    for (std::int64_t at = 0; at < unit.slice.amax_count; at += step)
      window.measure.push_back(
          {u, unit.slice.amax_begin + at, std::min(step, unit.slice.amax_count - at)});
  }

  /// Encodes and copies `now` and measures `next`, in one loop so that no thread waits between.
  void run_tasks(Window* now, ShardWriter* writer, Window* next) {
    std::vector<Batch> batches;
    if (now)
      batches = batches_of(*now, plan_, lanes_ ? kChunksInARow : 1, [&](const EncodeTask& task) {
        const GramSlot* gram = gptq_ ? grams_.of(*now, plan_.units[task.unit]) : nullptr;
        return gram != nullptr && gram->factor.depth > 0;
      });
    const std::size_t encodes = batches.size();
    const std::size_t copies = now ? now->copy.size() : 0;
    const std::size_t measures = next ? next->measure.size() : 0;
    const std::size_t grams = next ? next->unfilled.size() : 0;
    const std::size_t tasks = grams + encodes + copies + measures;
    parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      auto i = static_cast<std::size_t>(task);
      if (i < grams)  // the longest
        return fill_gram_slot(*plan_.statistics, options_.backend, *next->unfilled[i]);
      i -= grams;
      if (i < encodes && lanes_ && !batches[i].by_gram)
        return encode_in_a_row(*now, batches[i].first, batches[i].last, *writer);
      if (i >= encodes + copies) return measure(*next, i - encodes - copies);
      BufferPool::Lease buffers(pool_);
      if (i < encodes && batches[i].by_gram)
        return encode_by_gram(*now, batches[i], *writer, *buffers);
      if (i < encodes) return encode(*now, i, *writer, *buffers);
      copy(now->copy[i - encodes], *writer, *buffers);
    });
    if (!next) return;
    if (lanes_) settle(*next);
    set_globals(*next);
  }

  void measure(Window& window, std::size_t i) {
    const MeasureTask& m = window.measure[i];
    const Unit& unit = plan_.units[m.unit];
    if (const auto place = window.places.find(m.unit); place != window.places.end())
      if (DeviceLanes::Lease lane(*lanes_); lane) {
        const std::int64_t at =
            (m.begin - unit.slice.offset) * dtype_size(read_dtype(source_of(unit)));
        window.amaxes[i] = lane->slots[lane->turn ^= 1].measure(
            source_of(unit), m.begin, m.count, backend_,
            lanes_->store(window.store) + place->second.offset + at);
        window.uploaded[i] = true;
        return;
      }
    BufferPool::Lease buffers(pool_);
    window.amaxes[i] = unit.work == Work::transcode
                           ? measure_exponents(source_of(unit), m.begin, m.count, *buffers)
                           : measure_chunk(source_of(unit), m.begin, m.count, backend_, *buffers);
  }

  /// What is on the device now.
  void settle(Window& window) {
    lanes_->settle();
    for (std::size_t i = 0; i < window.measure.size(); ++i)
      if (window.uploaded[i])
        window.places[window.measure[i].unit].missing -= window.measure[i].count;
  }

  /// Where the task's rows lie on the device; null if they do not.
  std::byte* place_of(const Window& window, const EncodeTask& task) const {
    const auto place = window.places.find(task.unit);
    if (place == window.places.end() || place->second.missing > 0) return nullptr;
    const Unit& unit = plan_.units[task.unit];
    return lanes_->store(window.store) + place->second.offset +
           task.row * unit.slice.cols * dtype_size(read_dtype(source_of(unit)));
  }

  void encode(Window& window, std::size_t i, ShardWriter& writer, Buffers& buffers) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    finish_chunk(window, i, writer,
                 encoder_.chunk(unit, task.row, task.rows, globals_[unit.group],
                                grams_.of(window, unit), buffers));
  }

  void encode_by_gram(Window& window, const Batch& batch, ShardWriter& writer, Buffers& buffers) {
    const EncodeTask &first = window.encode[batch.first], &last = window.encode[batch.last - 1];
    const Unit& unit = plan_.units[first.unit];
    gptq_->encode(source_of(unit), unit.slice, first.row, last.row + last.rows - first.row,
                  first.rows, globals_[unit.group], *grams_.of(window, unit), buffers,
                  [&](std::int64_t chunk, EncodedChunk encoded) {
                    finish_chunk(window, batch.first + static_cast<std::size_t>(chunk), writer,
                                 std::move(encoded));
                  });
  }

  /// Tasks [first, last) on the device, if it has started. What is not quantized is done by the
  /// CPU.
  void encode_in_a_row(Window& window, std::size_t first, std::size_t last, ShardWriter& writer) {
    DeviceLanes::Lease lane(*lanes_);
    std::vector<std::size_t> tasks;
    for (std::size_t i = first; i < last; ++i) {
      if (lane && plan_.units[window.encode[i].unit].work == Work::quantize) {
        tasks.push_back(i);
        continue;
      }
      BufferPool::Lease buffers(pool_);
      encode(window, i, writer, *buffers);
    }
    if (tasks.empty()) return;
    const auto slot = [&](std::size_t i) -> DeviceSlot& { return lane->slots[i % 2]; };
    const auto begin = [&](std::size_t i) {
      const EncodeTask& task = window.encode[tasks[i]];
      const Unit& unit = plan_.units[task.unit];
      slot(i).begin(source_of(unit), unit.slice, task.row, task.rows, options_.quantizer,
                    globals_[unit.group], encoder_.weights(unit), place_of(window, task));
    };
    begin(0);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i + 1 < tasks.size()) begin(i + 1);
      finish_chunk(window, tasks[i], writer, slot(i).finish());
    }
  }

  void finish_chunk(Window& window, std::size_t i, ShardWriter& writer, EncodedChunk chunk) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    window.outcomes[i] = chunk.outcome;
    const std::int64_t elements = task.row * unit.out_cols();
    if (unit.work == Work::decode) {
      const int bytes = safetensors::dtype_bits(options_.plain) / 8;
      writer.write(unit.codes, static_cast<std::uint64_t>((unit.out_begin + elements) * bytes),
                   chunk.codes);
    } else {
      const std::int64_t blocks = unit.slice.cols / kBlock;
      const Arrangement& arrangement = plan_.format->names->arrangement;
      LendingPool<std::vector<std::byte>>::Lease tiles(tiles_);
      arrange(arrangement, task.rows, blocks, chunk, *tiles);
      writer.write_blocks(
          unit.codes, static_cast<std::uint64_t>(elements / 2), chunk.codes, unit.scales,
          static_cast<std::uint64_t>(scale_bytes(arrangement.scales, task.row, blocks)),
          chunk.scales);
    }
    const auto done = static_cast<std::uint64_t>(task.rows * unit.slice.cols);
    progress_.finish(unit.tensor, done);
    if (unit.second != kNone) progress_.finish(unit.second, done);
  }

  void copy(const CopyTask& task, ShardWriter& writer, Buffers& buffers) {
    const PlannedTensor& tensor = plan_.tensors[task.tensor];
    if (buffers.input.size() < task.bytes) buffers.input.resize(task.bytes);
    const std::span<std::byte> bytes(buffers.input.data(), task.bytes);
    tensor.stored.file->read(*tensor.stored.info, task.begin, bytes);
    writer.write(tensor.copy, task.begin, bytes);
    if (task.begin == 0 && tensor.marker != kNone)
      writer.write(tensor.marker, 0, std::as_bytes(std::span(plan_.format->fp8_marker_text)));
    progress_.finish(task.tensor, task.bytes);
  }

  /// From the amaxes of every member of the groups that the window is the first to need.
  void set_globals(const Window& window) {
    std::vector<std::pair<std::size_t, float>> amax_of;  // group, in the order of the tasks
    for (std::size_t i = 0; i < window.measure.size(); ++i) {
      const MeasureTask& m = window.measure[i];
      const Unit& unit = plan_.units[m.unit];
      if (!window.amaxes[i].finite) throw_non_finite(source_of(unit), m.begin, m.count);
      if (amax_of.empty() || amax_of.back().first != unit.group)
        amax_of.emplace_back(unit.group, 0.0f);
      amax_of.back().second = std::max(amax_of.back().second, window.amaxes[i].amax);
    }
    for (const auto& [number, amax] : amax_of) {
      const Group& group = plan_.groups[number];
      GlobalScale& global = globals_[number];
      global = group.work == Work::transcode ? global_for_exponents(amax)
                                             : GlobalScale::from_amax(amax, options_.quantizer);
      const float needed = amax == 0 ? 0 : GlobalScale::from_amax(amax, Quantizer::max).multiplier;
      if (group.moved_global && group.moved_global->multiplier >= needed)
        global = *group.moved_global;
    }
  }

  void write_globals(const Window& window, ShardWriter& writer) const {
    const auto write = [&](std::size_t tensor, const GlobalScale& scale) {
      if (tensor == kNone) return;
      const float stored = plan_.format->stored_global(scale);
      writer.write(tensor, 0, std::as_bytes(std::span(&stored, 1)));
    };
    for (const std::size_t u : window.units) {
      const Unit& unit = plan_.units[u];
      if (unit.work == Work::decode) continue;
      const bool moved = unit.work == Work::move;
      write(unit.weight_global, moved ? encoder_.moved_scales(unit, globals_[unit.group]).global
                                      : globals_[unit.group]);
      // The activations' scale has the full range of E4M3, however the weights were encoded.
      write(unit.input_global,
            unit.input
                ? *unit.input
                : GlobalScale::from_amax(plan_.groups[unit.group].input_amax, Quantizer::max));
      if (unit.marker != kNone)
        writer.write(unit.marker, 0, std::as_bytes(std::span(plan_.format->marker_text)));
    }
  }

  /// In the order of the tasks, so that the sum is the same for any number of threads.
  void add_outcomes(const Window& window) {
    for (std::size_t i = 0; i < window.encode.size(); ++i) {
      Outcome& sum = outcomes_[plan_.units[window.encode[i].unit].tensor];
      sum.error.squared_error += window.outcomes[i].error.squared_error;
      sum.error.squared_norm += window.outcomes[i].error.squared_norm;
      sum.clamped_blocks += window.outcomes[i].clamped_blocks;
      for (std::size_t c = 0; c < sum.chosen.size(); ++c)
        sum.chosen[c] += window.outcomes[i].chosen[c];
      sum.output.mse += window.outcomes[i].output.mse;
      sum.output.kept += window.outcomes[i].output.kept;
      list_clamped(window.outcomes[i].clamped, sum.clamped);
    }
  }

  /// As many as memory should hold.
  void list_clamped(const std::vector<std::int64_t>& found, std::vector<std::int64_t>& to) {
    const std::size_t n = std::min(found.size(), kMostClampedListed - clamped_listed_);
    to.insert(to.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n));
    clamped_listed_ += n;
  }

  /// The files that the shard's tensors come from, and those that hold partners of them.
  void check_inputs(std::size_t shard) const {
    std::set<const TensorFile*> inputs;
    const auto add = [&](const PlannedTensor& t) {
      for (const StoredTensor& part : {t.stored, t.source->data, t.source->scales})
        if (part) inputs.insert(part.file);
    };
    const PlannedShard& s = plan_.shards[shard];
    for (std::size_t t = s.first_tensor; t < s.first_tensor + s.tensors; ++t) {
      add(plan_.tensors[t]);
      for (std::size_t u = 0; u < plan_.tensors[t].units; ++u)
        for (const std::size_t member :
             plan_.groups[plan_.units[plan_.tensors[t].first_unit + u].group].units)
          add(plan_.tensors[plan_.units[member].tensor]);
    }
    for (const TensorFile* input : inputs) input->check_unchanged();
  }

  const Plan& plan_;
  const TransformOptions& options_;
  const Container* container_;
  const Backend& backend_;
  const UnitEncoder encoder_;
  const std::vector<bool>* done_ = nullptr;
  GramSlots grams_;
  std::vector<GlobalScale> globals_;  // of groups
  std::vector<bool> scheduled_;       // groups whose amax is measured or being measured
  std::vector<Outcome> outcomes_;
  LendingPool<std::vector<std::byte>> tiles_;
  BufferPool pool_;
  std::unique_ptr<DeviceLanes> lanes_;  // none if the CPU alone encodes
  std::unique_ptr<DeviceGptq> gptq_;    // none if the device is not for that
  bool last_of_device_ = false;         // what is measured from here on, the CPU encodes
  std::future<void> releasing_;
  std::optional<ReadAhead> ahead_;  // of bytes_given_

  // Where next_window() goes on.
  std::size_t shard_ = 0, position_ = 0;
  std::uint64_t part_ = 0;         // of the tensor: bytes copied, or units
  std::uint64_t bytes_given_ = 0;  // of input, in windows so far
  bool empty_given_ = false;
  int store_ = 0;  // of the last window
  std::size_t clamped_listed_ = 0;

  ProgressCount progress_;
};

}  // namespace

std::vector<Outcome> write_shards(
    const Plan& plan, const TransformOptions& options, const Container* container,
    const std::filesystem::path& output, const std::vector<bool>& done,
    const std::function<void(std::size_t, const std::vector<Outcome>&)>& before_commit) {
  return Pipeline(plan, options, container).run(output, done, before_commit);
}

}  // namespace nvfp4::checkpoint
