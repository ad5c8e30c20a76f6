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

/// Chooses between the global scales amax / 1536 and amax / 2688 of each group. The better one has
/// the smaller Σ (x − x̂)² over all weights; on a tie it is the first. It does what
/// choose_global_scale() does; the rows are read, encoded by mse and dropped. `groups` are measured
/// and `globals` hold amax / 1536. The choice is the same on every device and for any number of
/// threads. Throws as Encoder::encode() does.
void choose_globals(const Plan& plan, Encoder& encoder, std::span<const GroupAmax> groups,
                    std::vector<GlobalScale>& globals);

}  // namespace nvfp4::checkpoint
