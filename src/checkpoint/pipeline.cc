#include "checkpoint/pipeline.h"

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "checkpoint/device_chunk.h"
#include "core/parallel_for.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::File;
using safetensors::Writer;

/// Input that is measured and then read again: small enough to stay in the page cache.
constexpr std::uint64_t kWindowBytes = 100 << 20;
constexpr std::uint64_t kCopyBytes = 1 << 20;
/// Chunks that one thread brings through a device: all but the first are read, and all but the last
/// written, while the device works.
constexpr std::size_t kChunksInARow = 8;

struct MeasureTask {
  std::size_t unit;
  std::int64_t begin, count;  // elements of the tensor
};
struct EncodeTask {
  std::size_t unit;
  std::int64_t row, rows;
};
struct CopyTask {
  std::size_t tensor;
  std::uint64_t begin, bytes;
};

/// A part of one shard.
struct Window {
  explicit Window(std::size_t shard_) : shard(shard_) {}
  std::size_t shard;
  std::vector<std::size_t> units;
  std::vector<MeasureTask> measure;  // also of partners in other windows and shards
  std::vector<EncodeTask> encode;
  std::vector<CopyTask> copy;
  std::vector<AmaxResult> amaxes;         // of `measure`
  std::vector<QuantizationError> errors;  // of `encode`
};

/// What one thread feeds a device with.
struct Lane {
  Lane(Device device, const ChunkBytes& most) : slots{{device, most}, {device, most}} {}
  DeviceSlot slots[2];
};

class Pipeline {
 public:
  Pipeline(const ModelFolder& model, const Plan& plan, const PipelineOptions& options)
      : model_(model),
        plan_(plan),
        options_(options),
        backend_(find_backend(options.backend)),
        globals_(plan.groups.size()),
        scheduled_(plan.groups.size()),
        errors_(plan.tensors.size()),
        lanes_([device = options.device, most = largest_chunk(plan)] {
          return std::make_unique<Lane>(device, most);
        }),
        remaining_(std::make_unique<std::atomic<std::uint64_t>[]>(plan.tensors.size())) {}

  std::vector<QuantizationError> run(
      const std::filesystem::path& output, const std::vector<bool>& done,
      const std::function<void(std::size_t, const std::vector<QuantizationError>&)>&
          before_commit) {
    done_ = &done;
    start_progress();
    std::future<void> committing;
    std::optional<Writer> writer;
    const auto commit = [&](std::size_t shard) {
      if (committing.valid()) committing.get();
      // In the background: fsync waits for the disk while the next shard is computed.
      committing = std::async(std::launch::async, [&, shard, w = std::move(*writer)]() mutable {
        check_inputs(shard);
        before_commit(shard, errors_);
        w.commit();
      });
      writer.reset();
    };

    std::optional<Window> now = next_window();
    if (now) run_tasks(nullptr, nullptr, &*now);
    while (now) {
      if (!writer)
        writer.emplace(output / plan_.shards[now->shard].file, plan_.shards[now->shard].specs,
                       plan_.shards[now->shard].metadata);
      std::optional<Window> next = next_window();
      write_globals(*now, *writer);
      run_tasks(&*now, &*writer, next ? &*next : nullptr);
      add_errors(*now);
      if (!next || next->shard != now->shard) commit(now->shard);
      now = std::move(next);
    }
    if (committing.valid()) committing.get();
    return std::move(errors_);
  }

 private:
  const File& file_of(std::size_t tensor) const {
    return model_.files[plan_.tensors[tensor].shard];
  }

  void start_progress() {
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
      remaining_[t] = plan_.tensors[t].info->bytes;
      if ((*done_)[plan_.tensors[t].shard]) continue;
      ++progress_.tensors_total;
      progress_.bytes_total += plan_.tensors[t].info->bytes;
    }
  }

  void finish_part(std::size_t tensor, std::uint64_t bytes) {
    const bool whole = remaining_[tensor].fetch_sub(bytes) == bytes;
    const std::lock_guard lock(progress_mutex_);
    progress_.bytes_done += bytes;
    if (!whole) return;
    ++progress_.tensors_done;
    progress_.tensor = plan_.tensors[tensor].info->name;
    if (options_.progress) options_.progress(progress_);
  }

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
    const PlannedShard& shard = plan_.shards[shard_];
    std::uint64_t bytes = 0;
    while (position_ < shard.tensors && bytes < kWindowBytes) {
      const std::size_t t = shard.first_tensor + position_;
      const PlannedTensor& tensor = plan_.tensors[t];
      if (tensor.copy != kNone) {
        const std::uint64_t n = std::min(tensor.info->bytes - part_, kWindowBytes);
        add_copy(window, t, part_, n);
        bytes += n;
        part_ += n;
        if (part_ < tensor.info->bytes) continue;
      } else {
        const std::size_t u = tensor.first_unit + part_;
        bytes += add_unit(window, u);
        if (++part_ < tensor.units) continue;
      }
      ++position_;
      part_ = 0;
    }
    window.amaxes.resize(window.measure.size());
    window.errors.resize(window.encode.size());
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
    const std::int64_t step = rows_per_chunk(unit);
    for (std::int64_t row = 0; row < unit.slice.rows; row += step)
      window.encode.push_back({u, row, std::min(step, unit.slice.rows - row)});
    if (!scheduled_[unit.group]) {
      scheduled_[unit.group] = true;
      for (const std::size_t member : plan_.groups[unit.group].units) add_measure(window, member);
    }
    const int bits = safetensors::dtype_bits(plan_.tensors[unit.tensor].info->dtype);
    return static_cast<std::uint64_t>(unit.slice.rows * unit.slice.cols * bits / 8);
  }

  void add_measure(Window& window, std::size_t u) {
    const Unit& unit = plan_.units[u];
    const std::int64_t step = elements_per_measure(plan_.tensors[unit.tensor].info->dtype);
    for (std::int64_t at = 0; at < unit.slice.amax_count; at += step)
      window.measure.push_back(
          {u, unit.slice.amax_begin + at, std::min(step, unit.slice.amax_count - at)});
  }

  /// Encodes and copies `now` and measures `next`, in one loop so that no thread waits between.
  void run_tasks(Window* now, Writer* writer, Window* next) {
    const bool on_cpu = options_.device.type == DeviceType::cpu;
    const std::size_t chunks = now ? now->encode.size() : 0;
    const std::size_t encodes = on_cpu ? chunks : (chunks + kChunksInARow - 1) / kChunksInARow;
    const std::size_t copies = now ? now->copy.size() : 0;
    const std::size_t measures = next ? next->measure.size() : 0;
    parallel_for(static_cast<std::int64_t>(encodes + copies + measures), [&](std::int64_t task) {
      auto i = static_cast<std::size_t>(task);
      if (i < encodes && !on_cpu)
        return encode_on_device(*now, i * kChunksInARow, std::min((i + 1) * kChunksInARow, chunks),
                                *writer);
      BufferPool::Lease buffers(pool_);
      if (i < encodes) return encode(*now, i, *writer, *buffers);
      i -= encodes;
      if (i < copies) return copy(now->copy[i], *writer, *buffers);
      i -= copies;
      const MeasureTask& m = next->measure[i];
      const std::size_t tensor = plan_.units[m.unit].tensor;
      next->amaxes[i] = measure_chunk(file_of(tensor), *plan_.tensors[tensor].info, m.begin,
                                      m.count, backend_, *buffers);
    });
    if (next) set_globals(*next);
  }

  void encode(Window& window, std::size_t i, Writer& writer, Buffers& buffers) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    QuantizeOptions options;
    options.quantizer = options_.quantizer;
    options.backend = options_.backend;
    options.global = {&globals_[unit.group], 1};
    finish_chunk(window, i, writer,
                 encode_chunk(file_of(unit.tensor), *plan_.tensors[unit.tensor].info, unit.slice,
                              task.row, task.rows, options, buffers));
  }

  /// Tasks [first, last).
  void encode_on_device(Window& window, std::size_t first, std::size_t last, Writer& writer) {
    LendingPool<std::unique_ptr<Lane>>::Lease lane(lanes_);
    const auto slot = [&](std::size_t i) -> DeviceSlot& { return (*lane)->slots[i % 2]; };
    const auto begin = [&](std::size_t i) {
      const EncodeTask& task = window.encode[i];
      const Unit& unit = plan_.units[task.unit];
      slot(i).begin(file_of(unit.tensor), *plan_.tensors[unit.tensor].info, unit.slice, task.row,
                    task.rows, options_.quantizer, globals_[unit.group]);
    };
    begin(first);
    for (std::size_t i = first; i < last; ++i) {
      if (i + 1 < last) begin(i + 1);
      finish_chunk(window, i, writer, slot(i).finish(options_.backend));
    }
  }

  void finish_chunk(Window& window, std::size_t i, Writer& writer, const EncodedChunk& chunk) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    window.errors[i] = chunk.error;
    const std::int64_t elements = task.row * unit.slice.cols;
    writer.write(unit.codes, static_cast<std::uint64_t>(elements / 2), chunk.codes);
    writer.write(unit.scales, static_cast<std::uint64_t>(elements / kBlock), chunk.scales);
    const int bits = safetensors::dtype_bits(plan_.tensors[unit.tensor].info->dtype);
    finish_part(unit.tensor, static_cast<std::uint64_t>(task.rows * unit.slice.cols * bits / 8));
  }

  void copy(const CopyTask& task, Writer& writer, Buffers& buffers) {
    const PlannedTensor& tensor = plan_.tensors[task.tensor];
    if (buffers.input.size() < task.bytes) buffers.input.resize(task.bytes);
    const std::span<std::byte> bytes(buffers.input.data(), task.bytes);
    file_of(task.tensor).read(*tensor.info, task.begin, bytes);
    writer.write(tensor.copy, task.begin, bytes);
    finish_part(task.tensor, task.bytes);
  }

  /// From the amaxes of every member of the groups that the window is the first to need.
  void set_globals(const Window& window) {
    std::vector<std::pair<std::size_t, float>> amax_of;  // group, in the order of the tasks
    for (std::size_t i = 0; i < window.measure.size(); ++i) {
      const MeasureTask& m = window.measure[i];
      const Unit& unit = plan_.units[m.unit];
      if (!window.amaxes[i].finite)
        throw_non_finite(file_of(unit.tensor), *plan_.tensors[unit.tensor].info, m.begin, m.count);
      if (amax_of.empty() || amax_of.back().first != unit.group)
        amax_of.emplace_back(unit.group, 0.0f);
      amax_of.back().second = std::max(amax_of.back().second, window.amaxes[i].amax);
    }
    for (const auto& [group, amax] : amax_of)
      globals_[group] = GlobalScale::from_amax(amax, options_.quantizer);
  }

  void write_globals(const Window& window, Writer& writer) const {
    const auto write = [&](std::size_t tensor, const GlobalScale& scale) {
      if (tensor == kNone) return;
      const float stored = options_.format->stored_global(scale);
      writer.write(tensor, 0, std::as_bytes(std::span(&stored, 1)));
    };
    for (const std::size_t u : window.units) {
      const Unit& unit = plan_.units[u];
      write(unit.weight_global, globals_[unit.group]);
      // The activations' scale has the full range of E4M3, however the weights were encoded.
      write(unit.input_global,
            GlobalScale::from_amax(plan_.groups[unit.group].input_amax, Quantizer::max));
    }
  }

  /// In the order of the tasks, so that the sum is the same for any number of threads.
  void add_errors(const Window& window) {
    for (std::size_t i = 0; i < window.encode.size(); ++i) {
      QuantizationError& sum = errors_[plan_.units[window.encode[i].unit].tensor];
      sum.squared_error += window.errors[i].squared_error;
      sum.squared_norm += window.errors[i].squared_norm;
    }
  }

  /// The shard's own input, and those that hold partners of its tensors.
  void check_inputs(std::size_t shard) const {
    std::set<std::size_t> inputs = {shard};
    const PlannedShard& s = plan_.shards[shard];
    for (std::size_t t = s.first_tensor; t < s.first_tensor + s.tensors; ++t)
      for (std::size_t u = 0; u < plan_.tensors[t].units; ++u)
        for (const std::size_t member :
             plan_.groups[plan_.units[plan_.tensors[t].first_unit + u].group].units)
          inputs.insert(plan_.tensors[plan_.units[member].tensor].shard);
    for (const std::size_t input : inputs) model_.files[input].check_unchanged();
  }

  const ModelFolder& model_;
  const Plan& plan_;
  const PipelineOptions& options_;
  const Backend& backend_;
  const std::vector<bool>* done_ = nullptr;
  std::vector<GlobalScale> globals_;  // of groups
  std::vector<bool> scheduled_;       // groups whose amax is measured or being measured
  std::vector<QuantizationError> errors_;
  BufferPool pool_;
  LendingPool<std::unique_ptr<Lane>> lanes_;

  // Where next_window() goes on.
  std::size_t shard_ = 0, position_ = 0;
  std::uint64_t part_ = 0;  // of the tensor: bytes copied, or units
  bool empty_given_ = false;

  std::unique_ptr<std::atomic<std::uint64_t>[]> remaining_;  // input bytes of each tensor
  std::mutex progress_mutex_;
  Progress progress_;
};

}  // namespace

std::vector<QuantizationError> write_shards(
    const ModelFolder& model, const Plan& plan, const PipelineOptions& options,
    const std::filesystem::path& output, const std::vector<bool>& done,
    const std::function<void(std::size_t, const std::vector<QuantizationError>&)>& before_commit) {
  return Pipeline(model, plan, options).run(output, done, before_commit);
}

}  // namespace nvfp4::checkpoint
