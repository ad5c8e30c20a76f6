#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/encode/method_rows.h"
#include "checkpoint/plan/plan.h"
#include "core/lending_pool.h"

/// The encoding of a matrix in chunks of rows. Each chunk is read, encoded and written while it is
/// in a core's cache.
namespace nvfp4::checkpoint {

/// The memory of one task. Later tasks reuse it.
struct Buffers {
  std::vector<std::byte> input, strip, codes, scales;
};

using BufferPool = LendingPool<Buffers>;

/// Returns the number of rows of a unit that one task writes.
std::int64_t rows_per_chunk(const Unit& unit);
/// Returns the number of elements that one task measures.
std::int64_t elements_per_measure(const LogicalTensor& tensor);
/// Returns the dtype in which rows are read: the tensor's own, or FP32 for codes.
DType read_dtype(const LogicalTensor& tensor);

/// Returns the largest magnitude of the tensor's elements [begin, begin + count).
AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, Buffers& buffers);
/// Measures in the same way and leaves the elements in `bytes`, which has their size.
AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, std::span<std::byte> bytes);

/// Throws an error with the first non-finite element of [begin, begin + count): FormatError for NaN
/// of FP8 weights, otherwise ValueError. Throws IoError if all are finite now.
[[noreturn]] void throw_non_finite(const LogicalTensor& tensor, std::int64_t begin,
                                   std::int64_t count);

/// Reads rows [row, row + rows) as a dense [rows, slice.cols] matrix into `out`, which has its
/// size. For transposed slices of codes, `row` and `rows` are multiples of 16.
void read_rows(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
               std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out);

/// Reads rows as read_rows() does, as FP32 for every dtype.
void read_floats(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                 std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out);

struct EncodedChunk {
  std::span<std::byte> codes, scales;
  Outcome outcome;
  std::int64_t nan = 0;  ///< number of NaN values, if FP8 was dequantized
};
/// Quantizes rows [row, row + rows) of the unit on the CPU. The result is in `buffers`.
EncodedChunk encode_chunk(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                          std::int64_t rows, const RowsMethod& method, Buffers& buffers);
/// Dequantizes the same rows to a plain dtype. The values are in `codes`; there are no scales.
EncodedChunk decode_chunk(const Plan& plan, const Unit& unit, std::int64_t row, std::int64_t rows,
                          safetensors::DType dtype, Buffers& buffers);

/// Returns the output error over the calibration text that rows [row, row + rows) add, encoded as
/// NVFP4 or FP8. It assumes that errors of two inputs are uncorrelated: squared errors times the
/// sum of squares of their channel. `global` is the multiplier, or the FP8 scale of the matrix.
double weighted_error(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                      std::int64_t rows, const EncodedChunk& chunk, float global,
                      std::span<const double> squares);

}  // namespace nvfp4::checkpoint
