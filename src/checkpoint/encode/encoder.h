#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/encode/device.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/statistics/statistics.h"
#include "checkpoint/work/method_rows.h"

namespace nvfp4::checkpoint {

struct MeasureTask {
  std::size_t unit;
  std::int64_t begin, count;  // elements of the tensor
};
struct EncodeTask {
  std::size_t unit;
  std::int64_t row, rows;
};
/// The place of a unit in device memory, and the number of elements that are not uploaded.
struct Place {
  std::int64_t offset, missing;  // bytes, elements
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
  std::vector<MeasureTask> measure;  // includes partners in other windows and shards
  std::vector<EncodeTask> encode;
  std::vector<CopyTask> copy;
  std::vector<AmaxResult> amaxes;  // results of `measure`
  std::vector<Outcome> outcomes;   // results of `encode`
  int store = 0;                   // index of the device store
  std::int64_t stored_bytes = 0;
  std::map<std::size_t, Place> places;  // places of units, by unit
  std::vector<char> uploaded;  // results of `measure`: true if the elements are on the device
  std::map<std::size_t, std::shared_ptr<GramSlot>> grams;  // keyed by InputStatistics::triangle
  std::vector<GramSlot*> unfilled;  // elements of `grams` that must be filled
};

/// Gives windows the Gram matrices that their units need. Units of one window, or of two
/// consecutive windows, share them.
class GramSlots {
 public:
  explicit GramSlots(const Plan& plan) : plan_(plan), needed_(plan.method->needs == Needs::gram) {}

  /// Adds the unit's slot to the window. Returns the bytes that count as input and so limit the
  /// window.
  std::uint64_t add(Window& window, const Unit& unit) {
    if (!is_needed(unit)) return 0;
    std::shared_ptr<GramSlot>& slot = window.grams[unit.statistics->triangle];
    if (slot) return 0;
    std::weak_ptr<GramSlot>& known = known_[unit.statistics->triangle];
    slot = known.lock();
    if (!slot) {
      slot = std::make_shared<GramSlot>(
          GramSlot{unit.statistics, unit.slice.module, {}, layer_of(*unit.statistics)});
      known = slot;
      window.unfilled.push_back(slot.get());
    }
    return gram_slot_bytes(unit.statistics->depth) / 2;
  }

  /// Returns the unit's slot, or null if it needs none.
  const GramSlot* of(const Window& window, const Unit& unit) const {
    return is_needed(unit) ? window.grams.at(unit.statistics->triangle).get() : nullptr;
  }

 private:
  bool is_needed(const Unit& unit) const {
    return needed_ && unit.statistics != nullptr && unit.statistics->gram &&
           unit.as<QuantizeWork>() != nullptr;
  }

  /// Returns the Gram matrix of a layer. Experts that are needed at the same time share it.
  std::shared_ptr<LayerGram> layer_of(const InputStatistics& expert) {
    if (plan_.statistics->layer_tokens(expert) == 0) return nullptr;
    std::weak_ptr<LayerGram>& known = layers_[expert.experts];
    std::shared_ptr<LayerGram> layer = known.lock();
    if (!layer) known = layer = std::make_shared<LayerGram>();
    return layer;
  }

  const Plan& plan_;
  bool needed_;
  std::map<std::size_t, std::weak_ptr<GramSlot>> known_;
  std::map<std::size_t, std::weak_ptr<LayerGram>> layers_;  // keyed by InputStatistics::experts
};

/// The chunks Window::encode [first, last), which one thread encodes one after the other.
struct Batch {
  std::size_t first, last;
  bool by_gram;  ///< chunks of one unit, encoded at once; see DeviceGptq
};

struct EncoderOptions {
  std::string backend;  ///< backend of the CPU
  int sweeps = 0;
  Device device = {};
  bool wait_for_device = false;
  bool weigh_errors = false;  ///< fill Outcome::weighted_error; requires statistics
};

/// Measures and encodes the rows of units. The CPU and other devices give the same bytes. A device
/// does QuantizeWork, if it has memory and time; the CPU does all else.
///
/// For each window: add() its units, then fill() its Gram matrices and measure() its tasks, in any
/// order and from any thread. Then settle() it and encode() its batches().
class Encoder {
 public:
  /// Receives the result of Window::encode[task].
  using Finish = std::function<void(std::size_t task, EncodedChunk chunk)>;

  Encoder(const Plan& plan, EncoderOptions options);

  /// Reports whether a device other than the CPU is needed until the end.
  bool needs_device() const { return gptq_ != nullptr; }
  /// Makes the CPU encode all units that are added later.
  void leave_device() { leaving_ = true; }
  /// Frees everything that the process has on the device, in the background, if leave_device() was
  /// called. No other call may run.
  void release_device();

  /// Adds the unit's rows to the window as tasks. Returns the bytes that the unit takes in addition
  /// to its input.
  std::uint64_t add(Window& window, std::size_t unit);
  /// Fills Window::unfilled[i].
  void fill(const Window& window, std::size_t i) const;
  /// Measures Window::measure[i].
  void measure(Window& window, std::size_t i);
  /// Ends the measurement of the window. All its tasks must be measured, and no other call may run.
  void settle(Window& window);

  std::vector<Batch> batches(const Window& window) const;
  /// Encodes a batch. `globals` has the global scale of each group of the plan.
  void encode(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
              const Finish& finish);
  /// The buffers, also for copies, so that no memory is allocated twice.
  BufferPool& buffers() { return pool_; }

 private:
  const LogicalTensor& source_of(const Unit& unit) const;
  MatrixRows rows_of(const EncodeTask& task) const;
  RowsMethod method_of(const Window& window, const Unit& unit,
                       std::span<const GlobalScale> globals) const;
  void prepare_weights();
  void compare(const EncodeTask& task, const RowsMethod& method, EncodedChunk& chunk);
  void weigh(const Window& window, const EncodeTask& task, float global, EncodedChunk& chunk);
  const GramSlot* factored_gram(const Window& window, const Unit& unit) const;
  std::byte* place_of(const Window& window, const EncodeTask& task) const;
  void by_gram(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
               const Finish& finish);

  const Plan& plan_;
  const EncoderOptions options_;
  const Backend& backend_;
  GramSlots grams_;
  std::optional<InputWeights> input_weights_;  // only if errors are weighed
  double mean_square_ = 0;                     // mean over the inputs in the statistics
  BufferPool pool_;
  std::unique_ptr<DeviceLanes> lanes_;  // null if only the CPU encodes
  std::unique_ptr<DeviceGptq> gptq_;    // null if the device runs no GPTQ
  InvertLower gram_library_;            // for Gram matrices
  bool leaving_ = false;
  std::future<void> releasing_;
};

/// The distance of reading ahead. It exceeds two windows of the pipeline: enough for any disk, and
/// it fits into memory.
inline constexpr std::uint64_t kAheadBytes = 256 << 20;

/// Returns the part of the tensor's bytes_before that belongs to the unit.
std::uint64_t input_bytes(const Plan& plan, const Unit& unit);

/// A thread that asks the system for tensors up to kAheadBytes before they are read. It follows the
/// order of the plan and skips shards that are `done`. Data that is in memory costs almost nothing.
/// The arguments must outlive this object.
class ReadAhead {
 public:
  ReadAhead(const Plan& plan, const std::vector<bool>& done);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// Reports that the first `bytes` of input are being read, in the units of copies and
  /// input_bytes().
  void advance(std::uint64_t bytes);

 private:
  void run();
  void ask_for(const PlannedTensor& tensor);
  /// Requests a part of a stored tensor that counts as `counted` bytes of input.
  void ask_for(const StoredTensor& tensor, std::uint64_t begin, std::uint64_t bytes,
               std::uint64_t counted);
  /// Returns false if reading ahead has ended.
  bool wait_until_near();

  const Plan& plan_;
  const std::vector<bool>& done_;
  std::uint64_t position_ = 0;  // used by the thread only

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t limit_;
  bool stopped_ = false;
  std::thread thread_;  // last, since it uses all of these
};

}  // namespace nvfp4::checkpoint
