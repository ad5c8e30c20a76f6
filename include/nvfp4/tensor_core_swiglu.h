#pragma once

#include <limits>

#include "nvfp4/quantize.h"
#include "nvfp4/tensor_core_gemm.h"

/// Products with gate and up that end in SwiGLU: y = silu(gate · x) ∘ (up · x), stored or quantized
/// for the product that follows, without the sums ever reaching memory. The bits of gemm_into()
/// with the same tile and an FP32 result, followed by swiglu_into() or swiglu_quantize_into().
///
/// Shapes  x [M, K] as for gemm_into(), gate_up [2·I, K] packed by pack_gate_up_fragments(), y
///         [M, I] of any dtype and stride. Bias, alpha, workspace and errors as for gemm_into(); a
///         bias follows the rows as they were given to pack_gate_up_fragments().
/// Units   gate is clamped to <= limit and up to [-limit, limit] before SiLU.
namespace nvfp4 {

struct TensorCoreSwigluOptions {
  float limit = std::numeric_limits<float>::infinity();  ///< as SwigluOptions::limit
  TensorCoreGemmOptions gemm = {};
};

void swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up, MatrixSpan y,
                      const TensorCoreSwigluOptions& options = {});
void swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up, MatrixSpan y,
                      const TensorCoreSwigluOptions& options);

/// Quantized along rows with the max quantizer. `quantize`: quantizer max, a global
/// scale that is given (for the tensor, on either side; or for each row, on the GPU), any scale
/// layout; its stream and backend do not count. Throws ValueError too, for other options.
void swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up, QuantizedSpan out,
                               const QuantizeOptions& quantize,
                               const TensorCoreSwigluOptions& options = {});
void swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up, QuantizedSpan out,
                               const QuantizeOptions& quantize,
                               const TensorCoreSwigluOptions& options);

/// As grouped_gemm_into(): rows [starts[g], ends[g]) of x times the matrix of group g. Rows of no
/// group are not touched, but for their global scales and for padding of the scales' layout.
void grouped_swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up,
                              std::span<const std::int32_t> starts,
                              std::span<const std::int32_t> ends, MatrixSpan y,
                              const TensorCoreSwigluOptions& options = {});
void grouped_swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up,
                              std::span<const std::int32_t> starts,
                              std::span<const std::int32_t> ends, MatrixSpan y,
                              const TensorCoreSwigluOptions& options);
void grouped_swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up,
                                       std::span<const std::int32_t> starts,
                                       std::span<const std::int32_t> ends, QuantizedSpan out,
                                       const QuantizeOptions& quantize,
                                       const TensorCoreSwigluOptions& options = {});
void grouped_swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up,
                                       std::span<const std::int32_t> starts,
                                       std::span<const std::int32_t> ends, QuantizedSpan out,
                                       const QuantizeOptions& quantize,
                                       const TensorCoreSwigluOptions& options);

/// As routed_gemm_into(): row t · top_k + j is of the matrix that choice j of token t names. Rows
/// whose id names none are not touched, but for their global scales and for padding of the scales'
/// layout.
void routed_swiglu_gemm_into(MatrixView x, const FragmentWeights& gate_up, const Routing& routing,
                             MatrixSpan y, const TensorCoreSwigluOptions& options = {});
void routed_swiglu_gemm_into(QuantizedView x, const FragmentWeights& gate_up,
                             const Routing& routing, MatrixSpan y,
                             const TensorCoreSwigluOptions& options);
void routed_swiglu_gemm_quantize_into(MatrixView x, const FragmentWeights& gate_up,
                                      const Routing& routing, QuantizedSpan out,
                                      const QuantizeOptions& quantize,
                                      const TensorCoreSwigluOptions& options = {});
void routed_swiglu_gemm_quantize_into(QuantizedView x, const FragmentWeights& gate_up,
                                      const Routing& routing, QuantizedSpan out,
                                      const QuantizeOptions& quantize,
                                      const TensorCoreSwigluOptions& options);

}  // namespace nvfp4
