#pragma once

#include <cstdint>
#include <vector>

namespace nvfp4::checkpoint {

/// The largest number of ranks. Each rank looks for the files of all others.
inline constexpr int kMaxRanks = 65'536;

/// Returns the rank of each item, given the items' sizes. The largest item comes first and goes to
/// the rank with the fewest bytes. The result is the same in every process.
std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks);

}  // namespace nvfp4::checkpoint
