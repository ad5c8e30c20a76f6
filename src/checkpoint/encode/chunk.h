#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/encode/method_rows.h"
#include "checkpoint/plan/plan.h"
#include "core/lending_pool.h"

/// Rows of a matrix at a time: read, encoded, written, all while they are in a core's cache.
namespace nvfp4::checkpoint {

/// What one task works in. Kept from task to task.
struct Buffers {
  std::vector<std::byte> input, strip, codes, scales;
};

using BufferPool = LendingPool<Buffers>;

/// Rows of a unit that one task writes.
std::int64_t rows_per_chunk(const Unit& unit);
/// Elements that one task measures.
std::int64_t elements_per_measure(const LogicalTensor& tensor);
/// In which its rows are read: its own, or FP32 for codes.
DType read_dtype(const LogicalTensor& tensor);

/// Largest magnitude of the tensor's elements [begin, begin + count).
AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, Buffers& buffers);
/// The same, with the elements left in `bytes`, which has their size.
AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, std::span<std::byte> bytes);

/// Throws ValueError that names the first non-finite element of [begin, begin + count).
[[noreturn]] void throw_non_finite(const LogicalTensor& tensor, std::int64_t begin,
                                   std::int64_t count);

/// The dense [rows, slice.cols] matrix of rows [row, row + rows) into `out`, which has its size.
/// Transposed slices of codes: row and rows are multiples of 16.
void read_rows(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
               std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out);

/// The same as FP32, whatever the dtype.
void read_floats(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                 std::int64_t rows, std::vector<std::byte>& strip, std::span<std::byte> out);

struct EncodedChunk {
  std::span<std::byte> codes, scales;
  Outcome outcome;
  std::int64_t nan = 0;  ///< of the values, if they were FP8 and are decoded
};
/// Quantizes rows [row, row + rows) of the unit on the CPU. The result lies in `buffers`.
EncodedChunk encode_chunk(const LogicalTensor& tensor, const WeightSlice& slice, std::int64_t row,
                          std::int64_t rows, const RowsMethod& method, Buffers& buffers);
/// The same rows in a plain dtype, as `codes`; no scales.
EncodedChunk decode_chunk(const Plan& plan, const Unit& unit, std::int64_t row, std::int64_t rows,
                          safetensors::DType dtype, Buffers& buffers);

/// What rows [row, row + rows) of the unit, encoded as NVFP4 or FP8, add to the output error over
/// the calibration text where the errors of two inputs have nothing to do with each other: squared
/// errors times the sum of squares of their channel. `global`: the multiplier, or the scale of FP8
/// with one for the matrix.
double weighted_error(const LogicalTensor& tensor, const Unit& unit, std::int64_t row,
                      std::int64_t rows, const EncodedChunk& chunk, float global,
                      std::span<const double> squares);

}  // namespace nvfp4::checkpoint
