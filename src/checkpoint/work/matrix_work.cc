#include "checkpoint/work/matrix_work.h"

#include <algorithm>

namespace nvfp4::checkpoint {

void MatrixOutput::write(std::size_t tensor, std::string_view text) const {
  if (tensor != kNone) writer.write(tensor, 0, std::as_bytes(std::span(text)));
}

void MatrixOutput::write(std::size_t tensor, float number) const {
  if (tensor != kNone) writer.write(tensor, 0, std::as_bytes(std::span(&number, 1)));
}

std::int64_t MatrixWork::chunk_elements(const WeightSlice& slice) const {
  return slice.col_stride == 1 ? 1 << 18 : kTransposedChunkElements;
}

std::int64_t MatrixWork::rows_per_chunk(const WeightSlice& slice) const {
  const std::int64_t multiple = row_multiple_;
  return std::clamp<std::int64_t>(round_up(chunk_elements(slice) / slice.cols, multiple),
                                  std::min(multiple, slice.rows), slice.rows);
}

AmaxResult MatrixWork::measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                               const Backend& backend, Buffers& buffers) const {
  return measure_chunk(tensor, begin, count, backend, buffers);
}

}  // namespace nvfp4::checkpoint
