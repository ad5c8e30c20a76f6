#pragma once

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Wide elements first: with no gaps between tensors, each then starts at a multiple of its
/// element size, which PyTorch's loader needs. Then by name, as safetensors' own writer does it:
/// nothing is left of the order in the input, so that there and back gives the same file.
void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit);

/// A tensor of the output.
struct PlannedName {
  const PlannedShard* shard = nullptr;
  std::uint32_t tensor = 0;  ///< in its specs

  std::string text() const { return shard->specs.name(tensor); }
  int compare(const PlannedName& other) const {
    return shard->specs.compare_names(tensor, other.shard->specs, other.tensor);
  }
};
/// Those of all shards, by name; of one name, those of the first shard first.
std::vector<PlannedName> sorted_names(const Plan& plan);
/// Throws UnsupportedError that names the first that is there twice.
void require_unique_names(const Plan& plan);

}  // namespace nvfp4::checkpoint
