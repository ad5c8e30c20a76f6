#include "backends/reference/reference.h"

#include "backends/reference/gemm.h"
#include "backends/reference/rows.h"
#include "quantizers/encode_block.h"
#include "quantizers/error_sum.h"
#include "quantizers/gptq.h"

namespace nvfp4::reference {
namespace {

/// Returns element k of vector v, for both axes.
float element(const MatrixView& x, BlockAxis axis, std::int64_t v, std::int64_t k) {
  return axis == BlockAxis::rows ? x.at(v, k) : x.at(k, v);
}

/// The byte and the shift of element k of vector v.
struct CodePosition {
  std::int64_t byte;
  int shift;
};
CodePosition code_position(const QuantizedShape& s, std::int64_t v, std::int64_t k) {
  const int shift = k % 2 == 0 ? 0 : 4;
  if (s.axis == BlockAxis::rows) return {v * (s.cols / 2) + k / 2, shift};
  return {k / 2 * s.cols + v, shift};
}

template <class F>
void for_each_block(BlockAxis axis, const Tile& tile, F&& f) {
  if (axis == BlockAxis::rows) {
    for (std::int64_t v = tile.v0; v < tile.v1; ++v)
      for (std::int64_t b = tile.b0; b < tile.b1; ++b) f(v, b);
  } else {
    for (std::int64_t b = tile.b0; b < tile.b1; ++b)
      for (std::int64_t v = tile.v0; v < tile.v1; ++v) f(v, b);
  }
}

void encode(const EncodeJob& job, const Tile& tile) {
  const QuantizedShape& s = job.out.shape;
  for_each_block(s.axis, tile, [&](std::int64_t v, std::int64_t b) {
    float x[kLargestBlock];
    std::uint8_t codes[kLargestBlock / 2];
    const std::int64_t k0 = b * s.block;
    for (int i = 0; i < s.block; ++i) x[i] = element(job.x, s.axis, v - job.first_row, k0 + i);
    const float divisor = job.divisor_of(v);
    const float* weights = job.weights ? job.weights + k0 : nullptr;
    const auto* hessian = static_cast<const float*>(job.hessian.data);
    const E4M3 scale = hessian ? choose_scale_hessian(x, hessian + k0 * job.hessian.stride,
                                                      job.hessian.stride, s.block, divisor)
                               : choose_scale(job.quantizer, x, weights, s.block, divisor);
    encode_elements(x, s.block, scale, divisor, codes);
    for (int i = 0; i < s.block; i += 2)
      job.out.codes[code_position(s, v, k0 + i).byte] = codes[i / 2];
    job.out.scales[s.scale_offset(v, b)] = scale.bits;
  });
}

float decoded(const QuantizedView& q, std::int64_t v, std::int64_t k) {
  const CodePosition p = code_position(q.shape, v, k);
  const E2M1 code{static_cast<std::uint8_t>(q.codes[p.byte] >> p.shift & 0xF)};
  const E4M3 scale{q.scales[q.shape.scale_offset(v, k / q.shape.block)]};
  return decode_element(code, scale, q.global_of(v));
}

void decode(const QuantizedView& q, const MatrixSpan& out, const Tile& tile) {
  for_each_block(q.shape.axis, tile, [&](std::int64_t v, std::int64_t b) {
    for (std::int64_t k = b * q.shape.block; k < (b + 1) * q.shape.block; ++k) {
      const float value = decoded(q, v, k);
      const std::int64_t i =
          q.shape.axis == BlockAxis::rows ? v * out.stride + k : k * out.stride + v;
      if (out.dtype == DType::f32)
        static_cast<float*>(out.data)[i] = value;
      else
        static_cast<std::uint16_t*>(out.data)[i] =
            out.dtype == DType::bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
    }
  });
}

AmaxResult amax(const MatrixView& x, std::int64_t r0, std::int64_t r1) {
  AmaxResult result;
  for (std::int64_t r = r0; r < r1; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const float value = x.at(r, c);
      result.finite &= value - value == 0;
      const float a = block_amax(&value, 1);
      if (a > result.amax) result.amax = a;
    }
  return result;
}

void column_amax(const MatrixView& x, std::int64_t r0, std::int64_t r1, float* out) {
  for (std::int64_t r = r0; r < r1; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const float value = x.at(r, c);
      const float a = block_amax(&value, 1);
      if (a > out[c]) out[c] = a;
    }
}

void subtract_product(const ProductF64& p) {
  for (std::int64_t i = 0; i < p.rows; ++i)
    for (std::int64_t j = 0; j < p.columns; ++j) {
      double& sum = p.c[i * p.c_stride + j];
      for (std::int64_t k = 0; k < p.depth; ++k)
        sum = __builtin_fma(-p.a[i * p.a_stride + k], p.b[k * p.b_stride + j], sum);
    }
}

void gptq(const GptqJob& job, std::int64_t r0, std::int64_t r1) {
  for (std::int64_t r = r0; r < r1; ++r) quantize_gptq_row(job, r);
}

void block_errors(const MatrixView& x, const QuantizedView& q, std::int64_t first,
                  std::int64_t count, float* errors, float* norms) {
  const QuantizedShape& s = q.shape;
  const bool rows = s.axis == BlockAxis::rows;
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t across = rows ? s.blocks() : s.cols;
    const std::int64_t down = (first + n) / across, along = (first + n) % across;
    const std::int64_t v = rows ? down : along, b = rows ? along : down;
    BlockError sums;
    for (int i = 0; i < s.block; ++i) {
      const std::int64_t k = b * s.block + i;
      sums.add(i, element(x, s.axis, v, k), decoded(q, v, k));
    }
    errors[n] = sums.squared_error();
    norms[n] = sums.squared_norm();
  }
}

}  // namespace

const Backend& backend() {
  static const Backend kBackend{.name = "reference",
                                .description = "plain loops, the definition",
                                .encode = encode,
                                .pack = nullptr,  // quantized, then packed
                                .decode = decode,
                                .amax = amax,
                                .column_amax = column_amax,
                                .block_errors = block_errors,
                                .make_rows = make_rows,
                                .store_rows = store_rows,
                                .gram = gram,
                                .gptq = gptq,
                                .subtract_product = subtract_product,
                                .w4a4 = w4a4_kernels(),
                                .w4a16 = w4a16_kernels(),
                                .w4a16_bf16 = {},
                                .finish_gemm = finish_gemm};
  return kBackend;
}

}  // namespace nvfp4::reference
