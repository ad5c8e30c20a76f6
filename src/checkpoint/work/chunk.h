#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/families/experts.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/work/method_rows.h"
#include "core/lending_pool.h"

/// The encoding of a matrix in chunks of rows. Each chunk is read, encoded and written while it is
/// in a core's cache.
namespace nvfp4::checkpoint {

/// The memory of one task. Later tasks reuse it.
struct Buffers {
  std::vector<std::byte> input, strip, codes, scales;
};

using BufferPool = LendingPool<Buffers>;

/// Number of elements in a transposed chunk. It reads or writes a piece of each column, so wider
/// pieces need fewer calls. Codes are narrow.
inline constexpr std::int64_t kTransposedChunkElements = 1 << 20;

/// Returns the number of elements that one task measures.
std::int64_t elements_per_measure(const LogicalTensor& tensor);
/// Returns the dtype in which rows are read: the tensor's own, or FP32 for codes.
DType read_dtype(const LogicalTensor& tensor);

/// Returns the largest magnitude of the tensor's elements [begin, begin + count), and leaves them
/// in `bytes`, which has their size.
AmaxResult measure_chunk(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                         const Backend& backend, std::span<std::byte> bytes);

/// Throws an error with the first non-finite element of [begin, begin + count): FormatError for NaN
/// of FP8 weights, otherwise ValueError. Throws IoError if all are finite now.
[[noreturn]] void throw_non_finite(const LogicalTensor& tensor, std::int64_t begin,
                                   std::int64_t count);

/// Rows [row, row + rows) of a matrix.
struct MatrixRows {
  const LogicalTensor& source;
  const WeightSlice& slice;
  std::int64_t row = 0, rows = 0;
  /// The tensor whose columns stand beside those of `source`; null if there is none.
  const LogicalTensor* second = nullptr;
};

/// Reads rows as a dense [rows, slice.cols] matrix into `out`, which has its size. For transposed
/// slices of codes, `row` and `rows` are multiples of 16.
void read_rows(const MatrixRows& rows, std::vector<std::byte>& strip, std::span<std::byte> out);
/// Reads rows as read_rows() does, as FP32 for every dtype.
void read_floats(const MatrixRows& rows, std::vector<std::byte>& strip, std::span<std::byte> out);

/// Reports whether an element of an FP8 weight is stored as NaN.
bool is_nan_code(const LogicalTensor& tensor, std::int64_t element);

/// Encoded rows, in the memory of a task or of a device.
struct EncodedChunk {
  std::span<std::byte> codes, scales;
  Outcome outcome = {};
  std::int64_t nan = 0;  ///< number of NaN values, if FP8 was dequantized
};

}  // namespace nvfp4::checkpoint
