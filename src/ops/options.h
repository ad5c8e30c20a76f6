#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "nvfp4/activation.h"
#include "nvfp4/quantize.h"

namespace nvfp4 {

/// Throws DeviceError unless `device` is `expected`, or the CPU where that will do too.
void require_on(const char* op, const char* argument, Device device, Device expected,
                bool host_will_do = false);

/// Throws UnsupportedError unless `device` is the CPU.
void require_cpu(const char* op, const char* argument, Device device);

/// Throws ShapeError unless `data` is aligned to the 16 bytes that kernels of a GPU read at once.
void require_aligned(const char* op, const char* argument, const void* data, Device device);

/// Throws ShapeError unless the view describes memory that can hold it.
void require_matrix(const char* op, const char* argument, const MatrixView& x);

/// Throws ShapeError if `count` values cannot be at `data`.
void require_memory(const char* op, const char* argument, const void* data, std::int64_t count,
                    std::size_t alignment);
template <class T>
void require_array(const char* op, const char* argument, const T* data, std::int64_t count) {
  require_memory(op, argument, data, count, alignof(T));
}

/// Whether an optional matrix is there; one of no rows has columns all the same.
inline bool is_given(const MatrixView& x) {
  return x.data != nullptr || x.rows != 0 || x.cols != 0;
}

/// The quantized shape that `x` and `options` imply; throws ShapeError or ValueError if none.
QuantizedShape quantized_shape(const char* op, const MatrixView& x, const QuantizeOptions& options);
/// The same without weights and hessian, for a matrix that an operation makes.
QuantizedShape quantized_shape(const char* op, std::int64_t rows, std::int64_t cols, Device device,
                               const QuantizeOptions& options);

/// Throws ShapeError or DeviceError unless `out` can take what has `shape`.
void require_output(const char* op, const QuantizedSpan& out, const QuantizedShape& shape,
                    Device device);

/// Throws ValueError unless both senses are positive and the largest block scale times the
/// multiplier is finite.
void require_usable(const char* op, const GlobalScale& g);

/// Throws ShapeError unless all pointers that the shape needs are there.
void require_quantized(const char* op, const char* argument, const QuantizedView& q);

/// Throws ShapeError unless the ids are those of `rows` tokens, or the routing is.
void require_ids(const char* op, const Routing& routing, std::int64_t rows);
void require_routing(const char* op, const Routing& routing, std::int64_t rows);

/// Cuts [0, vectors) × [0, blocks) so that a tile is about half an L2 cache of input and lies in
/// contiguous memory; the same cut for any number of threads.
std::vector<Tile> make_tiles(const QuantizedShape& shape, std::int64_t element_bytes);

/// Row ranges [i, i + 1) of the same size.
std::vector<std::int64_t> row_cuts(std::int64_t rows, std::int64_t row_bytes);

/// `weights` times the power of two that brings the largest into [1, 2). Throws ValueError.
std::vector<float> normalized_weights(std::span<const float> weights);

}  // namespace nvfp4
