#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "nvfp4/activation.h"
#include "nvfp4/quantize.h"

namespace nvfp4 {

/// Returns the quantizer of `options`. The default is that of weights, mse.
inline Quantizer quantizer_of(const QuantizeOptions& options) {
  return options.quantizer.value_or(Quantizer::mse);
}

/// Throws DeviceError unless `device` is `expected`. With `host_will_do` the CPU is also valid.
void require_on(const char* op, const char* argument, Device device, Device expected,
                bool host_will_do = false);

/// Throws UnsupportedError unless `device` is the CPU.
void require_cpu(const char* op, const char* argument, Device device);

/// Throws ShapeError unless `data` is aligned to 16 bytes, the size of a read of GPU kernels.
void require_aligned(const char* op, const char* argument, const void* data, Device device);

/// Throws ShapeError unless shape, stride and pointer of the view are valid.
void require_matrix(const char* op, const char* argument, const MatrixView& x);

/// Throws ShapeError unless `data` is aligned, and not null if `count` is positive.
void require_memory(const char* op, const char* argument, const void* data, std::int64_t count,
                    std::size_t alignment);
template <class T>
void require_array(const char* op, const char* argument, const T* data, std::int64_t count) {
  require_memory(op, argument, data, count, alignof(T));
}

/// Reports whether an optional matrix is given. A matrix without rows still has columns.
inline bool is_given(const MatrixView& x) {
  return x.data != nullptr || x.rows != 0 || x.cols != 0;
}

/// Returns the quantized shape for `x` and `options`. Throws ShapeError or ValueError.
QuantizedShape quantized_shape(const char* op, const MatrixView& x, const QuantizeOptions& options);
/// Returns the same without weights and hessian, for a matrix that an operation computes.
QuantizedShape quantized_shape(const char* op, std::int64_t rows, std::int64_t cols, Device device,
                               const QuantizeOptions& options);

/// Throws ShapeError or DeviceError unless `out` has this shape and device.
void require_output(const char* op, const QuantizedSpan& out, const QuantizedShape& shape,
                    Device device);

/// Throws ValueError unless both senses are positive and the largest block scale times the
/// multiplier is finite.
void require_usable(const char* op, const GlobalScale& g);

/// Throws ShapeError unless the shape is valid and its pointers are not null.
void require_quantized(const char* op, const char* argument, const QuantizedView& q);

/// Throws ShapeError unless the ids, or the whole routing, are for `rows` tokens.
void require_ids(const char* op, const Routing& routing, std::int64_t rows);
void require_routing(const char* op, const Routing& routing, std::int64_t rows);
/// Throws ValueError unless the ids on the CPU are those of `experts` experts.
void require_experts(const char* op, const Routing& routing, std::int64_t experts);

/// Divides [0, vectors) × [0, blocks) into tiles. A tile is about half an L2 cache of input and
/// contiguous in memory. The tiles do not depend on the number of threads.
std::vector<Tile> make_tiles(const QuantizedShape& shape, std::int64_t element_bytes);

/// Returns the ends of row ranges of equal size: range i is [cuts[i], cuts[i + 1]).
std::vector<std::int64_t> row_cuts(std::int64_t rows, std::int64_t row_bytes);

/// Returns `weights` times the power of two that brings the largest into [1, 2). Throws ValueError.
std::vector<float> normalized_weights(std::span<const float> weights);

}  // namespace nvfp4
