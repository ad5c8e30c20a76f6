#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/encode/encoder.h"

namespace nvfp4::checkpoint {

struct GroupAmax {
  std::size_t group;
  float amax;
};

/// Of the global scales amax / 1536 and amax / 2688 the one with the smaller Σ (x − x̂)² over all
/// weights of the group, the first on a tie: what choose_global_scale() does, with rows that are
/// read, encoded by mse and dropped. Sets `globals` of the groups, which are measured, and with
/// amax / 1536 so far. Same choice on every device, for any number of threads. Throws as
/// Encoder::encode().
void choose_globals(const Plan& plan, Encoder& encoder, std::span<const GroupAmax> groups,
                    std::vector<GlobalScale>& globals);

}  // namespace nvfp4::checkpoint
