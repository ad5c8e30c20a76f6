#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "checkpoint/encode/encoder.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/verify/codes.h"
#include "checkpoint/write/write_plan.h"
#include "core/parallel_for.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Size of a window's input. It is measured and, unless a device stores it, read again from the
/// page cache.
constexpr std::uint64_t kWindowBytes = 100 << 20;
/// The largest number of tensors in a window. Tensors may be small, and each takes some hundred
/// bytes.
constexpr std::size_t kWindowTensors = 4096;
constexpr std::uint64_t kCopyBytes = 1 << 20;
/// The largest input that the CPU encodes while the device is released, which takes as long.
constexpr std::uint64_t kReleaseBytes = 400 << 20;

/// The progress of a run. It is reported to the caller after each part, from any thread.
class ProgressCount {
 public:
  ProgressCount(const Plan& plan, const std::function<void(const Progress&)>& tell)
      : plan_(plan),
        tell_(tell),
        remaining_(std::make_unique<std::atomic<std::uint64_t>[]>(plan.tensors.size())) {}

  /// Starts counting. Shards that are `done` do not count.
  void start(const std::vector<bool>& done) {
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
      remaining_[t] = work_of(t);
      if (done[plan_.tensors[t].shard]) continue;
      ++progress_.tensors_total;
      progress_.bytes_total += plan_.tensors[t].bytes_before;
    }
  }

  /// Counts `work` of a tensor: bytes of copies, elements of units.
  void finish(std::size_t tensor, std::uint64_t work) {
    const bool whole = remaining_[tensor].fetch_sub(work) == work;
    const PlannedTensor& t = plan_.tensors[tensor];
    const double bytes = work == 0
                             ? 0
                             : static_cast<double>(work) * (static_cast<double>(t.bytes_before) /
                                                            static_cast<double>(work_of(tensor)));
    const std::lock_guard lock(mutex_);
    progress_.bytes_done += static_cast<std::uint64_t>(bytes);
    progress_.tensor = t.name;
    progress_.tensors_done += whole;
    if (tell_) tell_(progress_);
  }

  std::uint64_t bytes_total() const { return progress_.bytes_total; }

 private:
  std::uint64_t work_of(std::size_t tensor) const {
    const PlannedTensor& t = plan_.tensors[tensor];
    return t.copy != kNone ? t.stored.info->bytes
                           : static_cast<std::uint64_t>(t.source->elements());
  }

  const Plan& plan_;
  const std::function<void(const Progress&)>& tell_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> remaining_;  ///< remaining work of each tensor
  std::mutex mutex_;
  Progress progress_;
};

class Pipeline {
 public:
  Pipeline(const Plan& plan, const TransformOptions& options, Output& output)
      : plan_(plan),
        options_(options),
        output_(output),
        done_(output.done()),
        encoder_(plan, {options.backend, options.chosen.sweeps, options.device,
                        options.wait_for_device, options.weigh_errors}),
        globals_(plan.groups.size()),
        scheduled_(plan.groups.size()),
        outcomes_(plan.tensors.size()),
        progress_(plan, options.progress) {}

  Written run(const std::function<void()>& before_commit) {
    progress_.start(done_);
    ahead_.emplace(plan_, done_);
    std::future<void> committing;
    std::unique_ptr<ShardWriter> writer;
    // The next shard is opened in the background. Some file systems take a tenth of a second to
    // reserve a gigabyte.
    std::future<std::unique_ptr<ShardWriter>> opening;
    const auto open_next = [&](std::size_t shard) {
      while (shard < done_.size() && done_[shard]) ++shard;
      if (shard == done_.size()) return;
      opening = std::async(std::launch::async, [&, shard] { return output_.open_shard(shard); });
    };
    const auto commit = [&](std::size_t shard) {
      if (committing.valid()) committing.get();
      for (const PlannedCacheScale& scale : plan_.shards[shard].cache_scales) {
        const float value = fp8_scale(scale.amax);  // used for NVFP4, too, as in ModelOpt
        writer->write(scale.tensor, 0, std::as_bytes(std::span(&value, 1)));
      }
      // A shard is committed in the background: fsync waits for the disk while the next shard is
      // computed.
      committing = std::async(std::launch::async, [&, shard, w = std::move(writer)]() mutable {
        check_inputs(shard);
        before_commit();
        output_.before_commit(shard, *w, outcomes_);
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
      if (is_end()) encoder_.leave_device();
      std::optional<Window> next = next_window();
      write_scales(*now, *writer);
      run_tasks(&*now, &*writer, next ? &*next : nullptr);
      encoder_.release_device();
      add_outcomes(*now);
      if (!next || next->shard != now->shard) commit(now->shard);
      now = std::move(next);
    }
    if (committing.valid()) committing.get();
    return {std::move(outcomes_), warning_of_nan()};
  }

 private:
  /// Reports whether the CPU encodes the units that no window has yet.
  bool is_end() const {
    const std::uint64_t end = std::min(kReleaseBytes, progress_.bytes_total() / 4);
    return options_.release_device && !encoder_.needs_device() &&
           bytes_given_ + end >= progress_.bytes_total();
  }

  const LogicalTensor& source_of(const Unit& u) const { return *plan_.tensors[u.tensor].source; }

  /// Returns the next unwritten part of one shard.
  std::optional<Window> next_window() {
    while (shard_ < plan_.shards.size() && (done_[shard_] || plan_.shards[shard_].tensors == 0 ||
                                            position_ == plan_.shards[shard_].tensors)) {
      if (!done_[shard_] && plan_.shards[shard_].tensors == 0 && !empty_given_) {
        empty_given_ = true;  // A shard without tensors is a file, too.
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
    const std::size_t end = std::min(shard.tensors, position_ + kWindowTensors);
    while (position_ < end && bytes < kWindowBytes) {
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
    // An empty copy still counts as a tensor.
    if (n == 0) window.copy.push_back({tensor, begin, 0});
    for (std::uint64_t at = 0; at < n; at += kCopyBytes)
      window.copy.push_back({tensor, begin + at, std::min(kCopyBytes, n - at)});
  }

  std::uint64_t add_unit(Window& window, std::size_t u) {
    const Unit& unit = plan_.units[u];
    const std::uint64_t beside = encoder_.add(window, u);
    if (unit.group != kNone && !scheduled_[unit.group]) {
      scheduled_[unit.group] = true;
      for (const std::size_t member : plan_.groups[unit.group].units) add_measure(window, member);
    }
    return input_bytes(plan_, unit) + beside;
  }

  void add_measure(Window& window, std::size_t u) {
    const Unit& unit = plan_.units[u];
    if (!unit.work().is_measured()) return;
    const std::int64_t step = elements_per_measure(source_of(unit));
    for (std::int64_t at = 0; at < unit.slice.amax_count; at += step)
      window.measure.push_back(
          {u, unit.slice.amax_begin + at, std::min(step, unit.slice.amax_count - at)});
  }

  /// Encodes and copies `now` and measures `next`. One loop does both, so that no thread waits in
  /// between.
  void run_tasks(Window* now, ShardWriter* writer, Window* next) {
    const std::vector<Batch> batches = now ? encoder_.batches(*now) : std::vector<Batch>{};
    const std::size_t encodes = batches.size();
    const std::size_t copies = now ? now->copy.size() : 0;
    const std::size_t measures = next ? next->measure.size() : 0;
    const std::size_t grams = next ? next->unfilled.size() : 0;
    const std::size_t tasks = grams + encodes + copies + measures;
    parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      auto i = static_cast<std::size_t>(task);
      if (i < grams) return encoder_.fill(*next, i);  // the longest tasks
      i -= grams;
      if (i < encodes)
        return encoder_.encode(*now, batches[i], globals_,
                               [&](std::size_t chunk, EncodedChunk encoded) {
                                 finish_chunk(*now, chunk, *writer, std::move(encoded));
                               });
      i -= encodes;
      if (i < copies) return copy(now->copy[i], *writer);
      encoder_.measure(*next, i - copies);
    });
    if (!next) return;
    encoder_.settle(*next);
    set_globals(*next);
  }

  void finish_chunk(Window& window, std::size_t i, ShardWriter& writer, EncodedChunk chunk) {
    const EncodeTask& task = window.encode[i];
    const Unit& unit = plan_.units[task.unit];
    add_nan(unit.tensor, chunk.nan);
    window.outcomes[i] = chunk.outcome;
    LendingPool<std::vector<std::byte>>::Lease room(room_);
    unit.work().write({writer, unit.places, plan_.format},
                      {source_of(unit), unit.slice, task.row, task.rows}, chunk, *room);
    const auto done = static_cast<std::uint64_t>(task.rows * unit.slice.cols);
    progress_.finish(unit.tensor, done);
    if (unit.second != kNone) progress_.finish(unit.second, done);
  }

  void add_nan(std::size_t tensor, std::int64_t n) {
    if (n == 0) return;
    refuse_nan(*plan_.tensors[tensor].source, n, options_.allow.broken_scales);
    const std::lock_guard lock(nan_mutex_);
    nan_[tensor] += n;
  }

  /// Returns the warning about NaN values, or an empty text if there were none.
  std::string warning_of_nan() const {
    if (nan_.empty()) return {};
    const auto& [tensor, n] = *nan_.begin();
    const std::string more =
        nan_.size() == 1 ? "" : fmt::format(" (and {} more weights)", nan_.size() - 1);
    return fmt::format(
        "--allow broken-scales: faulty weights are used as they are: {}: {}: {} codes are NaN{}",
        kCodeNan, plan_.tensors[tensor].source->data.describe(), n, more);
  }

  void copy(const CopyTask& task, ShardWriter& writer) {
    const PlannedTensor& tensor = plan_.tensors[task.tensor];
    BufferPool::Lease buffers(encoder_.buffers());
    const auto bytes = grow(buffers->input, static_cast<std::int64_t>(task.bytes));
    tensor.stored.file->read(*tensor.stored.info, task.begin, bytes);
    if (tensor.source->encoding() == Encoding::fp8 &&
        tensor.stored.info == tensor.source->data.info)
      add_nan(task.tensor, count_nan(bytes));
    writer.write(tensor.copy, task.begin, bytes);
    if (task.begin == 0 && tensor.marker != kNone)
      writer.write(tensor.marker, 0, std::as_bytes(std::span(plan_.format->fp8_marker_text)));
    progress_.finish(task.tensor, task.bytes);
  }

  /// Sets the global scales of the groups that this window needs first, from the amaxes of all
  /// their members.
  void set_globals(const Window& window) {
    struct Measured {
      const MatrixWork* work = nullptr;
      float amax = 0;
      const LogicalTensor* largest = nullptr;
    };
    std::map<std::size_t, Measured> groups;
    for (std::size_t i = 0; i < window.measure.size(); ++i) {
      const MeasureTask& m = window.measure[i];
      const Unit& unit = plan_.units[m.unit];
      if (!window.amaxes[i].finite) throw_non_finite(source_of(unit), m.begin, m.count);
      Measured& group = groups[unit.group];
      if (group.largest == nullptr || window.amaxes[i].amax > group.amax)
        group = {&unit.work(), window.amaxes[i].amax, &source_of(unit)};
    }
    for (const auto& [group, measured] : groups) {
      globals_[group] = measured.work->global_scale(
          {measured.amax, plan_.method->scales, plan_.groups[group].copied});
      // verify takes the multiplier of larger weights for a reciprocal.
      const bool is_new = dynamic_cast<const QuantizeWork*>(measured.work) != nullptr;
      require<ValueError>(!is_new || measured.amax < 2688,
                          "{}: has weights up to {:.3g}, must be below 2688; hint: --ignore "
                          "excludes the tensor",
                          measured.largest->data.describe(), measured.amax);
    }
  }

  void write_scales(const Window& window, ShardWriter& writer) const {
    for (const std::size_t u : window.units) {
      const Unit& unit = plan_.units[u];
      unit.work().write_scales({writer, unit.places, plan_.format},
                               unit.group == kNone ? GlobalScale() : globals_[unit.group]);
    }
  }

  /// Adds in the order of the tasks, so that the sum is the same for any number of threads.
  void add_outcomes(const Window& window) {
    for (std::size_t i = 0; i < window.encode.size(); ++i) {
      Outcome& sum = outcomes_[plan_.units[window.encode[i].unit].tensor];
      sum.error.squared_error += window.outcomes[i].error.squared_error;
      sum.error.squared_norm += window.outcomes[i].error.squared_norm;
      sum.weighted_error += window.outcomes[i].weighted_error;
      if (const float error = window.outcomes[i].error_with_global; error >= 0)
        sum.error_with_global = std::max(sum.error_with_global, 0.0f) + error;
      sum.clamped_blocks += window.outcomes[i].clamped_blocks;
      for (const ChosenRows& rows : window.outcomes[i].chosen_rows) sum.add_chosen(rows);
      sum.factored = std::max(sum.factored, window.outcomes[i].factored);
      sum.output.mse += window.outcomes[i].output.mse;
      sum.output.kept += window.outcomes[i].output.kept;
      list_clamped(window.outcomes[i].clamped, sum.clamped);
    }
  }

  /// Lists at most kMostClampedListed blocks, to bound the memory.
  void list_clamped(const std::vector<std::int64_t>& found, std::vector<std::int64_t>& to) {
    const std::size_t n = std::min(found.size(), kMostClampedListed - clamped_listed_);
    to.insert(to.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n));
    clamped_listed_ += n;
  }

  /// Checks the files of the shard's tensors and those of their partners.
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
        if (const std::size_t group = plan_.units[plan_.tensors[t].first_unit + u].group;
            group != kNone)
          for (const std::size_t member : plan_.groups[group].units)
            add(plan_.tensors[plan_.units[member].tensor]);
    }
    for (const TensorFile* input : inputs) input->check_unchanged();
  }

  const Plan& plan_;
  const TransformOptions& options_;
  Output& output_;
  const std::vector<bool>& done_;
  Encoder encoder_;
  std::vector<GlobalScale> globals_;  // global scale of each group
  std::vector<bool> scheduled_;       // groups whose amax is measured or is being measured
  std::vector<Outcome> outcomes_;
  std::mutex nan_mutex_;
  std::map<std::size_t, std::int64_t> nan_;  // number of NaN codes of each FP8 tensor
  LendingPool<std::vector<std::byte>> room_;
  std::optional<ReadAhead> ahead_;  // reads ahead of bytes_given_

  // The position of next_window().
  std::size_t shard_ = 0, position_ = 0;
  std::uint64_t part_ = 0;         // bytes or units of the tensor that are in windows
  std::uint64_t bytes_given_ = 0;  // bytes of input in windows so far
  bool empty_given_ = false;
  int store_ = 0;  // store of the last window
  std::size_t clamped_listed_ = 0;

  ProgressCount progress_;
};

}  // namespace

Written write_shards(const Plan& plan, const TransformOptions& options, Output& output,
                     const std::function<void()>& before_commit) {
  return Pipeline(plan, options, output).run(before_commit);
}

}  // namespace nvfp4::checkpoint
