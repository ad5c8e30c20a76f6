#pragma once

#include "checkpoint/encode/chunk.h"

/// Conversions between kinds of 4-bit blocks that do not round the values again.
namespace nvfp4::checkpoint {

/// Returns the largest scale of MXFP4 elements [begin, begin + count), and whether all scales are
/// numbers.
AmaxResult measure_exponents(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                             Buffers& buffers);
/// Returns the global scale for MXFP4 blocks whose largest scale is `largest`. That scale becomes
/// 256, and each power of two down to 2^-17 of it is an E4M3.
/// Source: NVIDIA Model-Optimizer, examples/deepseek/deepseek_v4, cast_mxfp4_to_nvfp4.
GlobalScale global_for_exponents(float largest);

/// Transcodes rows [row, row + rows) from MXFP4 to NVFP4. Blocks whose scale is below the smallest
/// one are rounded with that, and counted.
EncodedChunk transcode_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                             std::int64_t row, std::int64_t rows, const GlobalScale& global,
                             Buffers& buffers);

/// Copies rows of NVFP4: the even column in the low nibble, the scales row-major. If `moved`
/// changes the scales, they lose their sign, are multiplied by its ratio and rounded.
EncodedChunk move_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                        const MovedScales& moved, std::int64_t row, std::int64_t rows,
                        Buffers& buffers);

/// Rearranges the codes and scales of `rows` rows of `blocks` blocks. Codes are changed in place;
/// `tiles` is memory for the scales.
void arrange(const Arrangement& arrangement, std::int64_t rows, std::int64_t blocks,
             EncodedChunk& chunk, std::vector<std::byte>& tiles);

}  // namespace nvfp4::checkpoint
