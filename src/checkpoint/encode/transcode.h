#pragma once

#include "checkpoint/encode/chunk.h"

/// From one kind of 4-bit blocks to another without rounding the values again.
namespace nvfp4::checkpoint {

/// The largest scale of MXFP4 elements [begin, begin + count), and whether all of them are numbers.
AmaxResult measure_exponents(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                             Buffers& buffers);
/// The global scale for MXFP4 blocks whose largest scale is `largest`: that one becomes 256, and
/// every power of two down to 2^-17 times that is an E4M3.
/// Source: NVIDIA Model-Optimizer, examples/deepseek/deepseek_v4, cast_mxfp4_to_nvfp4.
GlobalScale global_for_exponents(float largest);

/// Rows [row, row + rows) of MXFP4 as NVFP4. Blocks too small for their scale are rounded with the
/// smallest one, and counted.
EncodedChunk transcode_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                             std::int64_t row, std::int64_t rows, const GlobalScale& global,
                             Buffers& buffers);

/// The same rows of NVFP4, the even column in the low nibble and the scales row-major. If `moved`
/// changes the scales, they lose their sign, are multiplied by its ratio and rounded.
EncodedChunk move_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                        const MovedScales& moved, std::int64_t row, std::int64_t rows,
                        Buffers& buffers);

/// Puts codes and scales of `rows` rows of `blocks` blocks in another order, the codes in place;
/// `tiles` is room for the scales.
void arrange(const Arrangement& arrangement, std::int64_t rows, std::int64_t blocks,
             EncodedChunk& chunk, std::vector<std::byte>& tiles);

}  // namespace nvfp4::checkpoint
