#pragma once

#include <map>
#include <memory>

#include "checkpoint/encode/window.h"
#include "checkpoint/work/gram_slot.h"

namespace nvfp4::checkpoint {

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
