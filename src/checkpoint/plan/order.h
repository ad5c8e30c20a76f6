#pragma once

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Sorts a shard's tensors by decreasing element size, then by name, as the writer of safetensors
/// does. Without gaps each tensor then starts at a multiple of its element size, as PyTorch's
/// loader needs. The order of the input has no influence, so a conversion back gives the same file.
void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit);

/// A tensor of the output.
struct PlannedName {
  const PlannedShard* shard = nullptr;
  std::uint32_t tensor = 0;  ///< the index in shard->specs

  std::string text() const { return shard->specs.name(tensor); }
  int compare(const PlannedName& other) const {
    return shard->specs.compare_names(tensor, other.shard->specs, other.tensor);
  }
};
/// Returns the tensors of all shards, sorted by name. Tensors with the same name are in the order
/// of their shards.
std::vector<PlannedName> sorted_names(const Plan& plan);
/// Throws UnsupportedError with the first name that occurs twice.
void require_unique_names(const Plan& plan);

}  // namespace nvfp4::checkpoint
