#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nvfp4 {

/// Sixteen weights and what they share.
struct InspectedBlock {
  std::int64_t row = 0;     ///< over all matrices of a stack, [N, K] each
  std::int64_t column = 0;  ///< of its first weight
  std::uint8_t scale_bits = 0;
  float scale = 0;          ///< the E4M3 value
  double global_scale = 0;  ///< as a multiplier
  /// -6 to 6; a weight is element * scale * global_scale.
  std::array<float, 16> elements{};
};

/// The first `count` blocks of a row of an NVFP4 tensor. `tensor` and `path` are as those of
/// inspect_checkpoint(). Empty if the tensor is not NVFP4. Throws IoError, FormatError, and
/// ValueError if there is no such tensor or row.
std::vector<InspectedBlock> inspect_blocks(const std::filesystem::path& path,
                                           const std::string& tensor, std::int64_t row,
                                           std::int64_t count);

}  // namespace nvfp4
