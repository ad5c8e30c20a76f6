#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nvfp4 {

/// A block of 16 weights with its scales.
struct InspectedBlock {
  std::int64_t row = 0;     ///< row, counted over all matrices [N, K] of a stack
  std::int64_t column = 0;  ///< column of its first weight
  std::uint8_t scale_bits = 0;
  float scale = 0;          ///< value of the E4M3 scale
  double global_scale = 0;  ///< multiplier
  /// The elements, -6 to 6. A weight is element * scale * global_scale.
  std::array<float, 16> elements{};
};

/// Returns the first `count` blocks of a row of an NVFP4 tensor. `tensor` and `path` are as for
/// inspect_checkpoint(). The result is empty if the tensor is not NVFP4. Throws IoError,
/// FormatError, and ValueError if there is no such tensor or row.
std::vector<InspectedBlock> inspect_blocks(const std::filesystem::path& path,
                                           const std::string& tensor, std::int64_t row,
                                           std::int64_t count);

}  // namespace nvfp4
