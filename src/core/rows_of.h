#pragma once

#include <cstddef>
#include <cstdint>

#include "nvfp4/matrix.h"

/// Functions that return rows [row, row + rows) of a matrix.
namespace nvfp4 {

template <class Void>
BasicMatrixView<Void> rows_of(BasicMatrixView<Void> m, std::int64_t row, std::int64_t rows) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (m.data != nullptr) m.data = static_cast<Byte*>(m.data) + row * m.stride * dtype_size(m.dtype);
  m.rows = rows;
  return m;
}

/// Returns rows of a matrix with linear scales. If blocks run down the columns, `row` and `rows`
/// are multiples of a block.
template <class Byte, class Float>
BasicQuantizedView<Byte, Float> rows_of(BasicQuantizedView<Byte, Float> q, std::int64_t row,
                                        std::int64_t rows) {
  const bool columns = q.shape.axis == BlockAxis::columns;
  q.codes += columns ? row / 2 * q.shape.cols : row * (q.shape.cols / 2);
  q.scales += columns ? row / q.shape.block * q.shape.cols : row * q.shape.blocks();
  if (!columns && q.shape.scope == GlobalScope::vector) q.global_scale += row;
  q.shape.rows = rows;
  return q;
}

}  // namespace nvfp4
