#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/work/method_rows.h"

/// The tasks that the pipeline measures, encodes and copies together.
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

}  // namespace nvfp4::checkpoint
