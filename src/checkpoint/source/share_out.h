#pragma once

#include <cstdint>
#include <vector>

namespace nvfp4::checkpoint {

/// Of each of things of that size, the rank that takes it: the largest first, to the rank with the
/// least. The same in every process.
std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks);

}  // namespace nvfp4::checkpoint
