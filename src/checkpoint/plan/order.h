#pragma once

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Wide elements first: with no gaps between tensors, each then starts at a multiple of its
/// element size, which PyTorch's loader needs. Then by name, as safetensors' own writer does it:
/// nothing is left of the order in the input, so that there and back gives the same file.
void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit);

}  // namespace nvfp4::checkpoint
