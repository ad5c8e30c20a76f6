#include "backends/cuda/gemm/fp8/launch.h"

#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/fp8/stage.h"
#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda::fp8 {
namespace {

/// Throws ShapeError unless rows start at multiples of 16 bytes.
void require_aligned(const char* name, const void* data, std::int64_t stride, DType type) {
  require<ShapeError>(
      reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride * dtype_size(type) % 16 == 0,
      "gemm: {} = {} with stride {}, rows must start at multiples of 16 bytes for "
      "arithmetic = fp8",
      name, data, stride);
}

}  // namespace

cublaslt::Product product_of(std::int64_t m, std::int64_t n, std::int64_t k, DType out) {
  alignas(16) static std::byte somewhere[16];
  return {.type = cublaslt::kRealE4m3,
          .n = n,
          .m = m,
          .k = k,
          .w = somewhere,
          .w_scales = somewhere,
          .x = somewhere,
          .x_stride = k,
          .x_scales = somewhere,
          .out = somewhere,
          .out_type = out == DType::bf16 ? cublaslt::kRealBf16 : cublaslt::kReal16,
          .out_stride = n,
          .fast_accumulation = kFastAccumulation,
          .workspace = somewhere,
          .workspace_bytes = static_cast<std::size_t>(kLibraryBytes)};
}

void launch(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte>) {
  const MatrixView& x = job.x;
  const std::int64_t rows = x.rows, n = job.w->rows(), k = job.w->cols();
  require_aligned("x", x.data, x.stride, x.dtype);
  require_aligned("out", job.out.data, job.out.stride, job.out.dtype);
  const Staging at = staging_of(rows, n, k);
  std::byte* const staging = job.staging.data();
  const StagedWeights w{.codes = reinterpret_cast<std::uint8_t*>(staging + at.w),
                        .powers = reinterpret_cast<float*>(staging + at.w_powers),
                        .factors = reinterpret_cast<float*>(staging + at.w_factors),
                        .bias = reinterpret_cast<std::uint16_t*>(staging + at.bias)};
  auto* const codes = reinterpret_cast<std::uint8_t*>(staging + at.x);
  auto* const factors = reinterpret_cast<float*>(staging + at.x_factors);
  const cudaStream_t stream = stream_of(job.stream);
  quantize_rows(x, codes, factors, stream);
  decode_weights(arguments_of(job), w, stream);
  cublaslt::Product product = product_of(rows, n, k, job.out.dtype);
  product.planned_m = plan.problem.m;
  product.w = w.codes;
  product.w_scales = w.factors;
  product.x = codes;
  product.x_scales = factors;
  product.out = job.out.data;
  product.out_stride = job.out.stride;
  product.bias = job.bias == nullptr ? nullptr : w.bias;
  product.workspace = staging + at.library;
  product.stream = stream;
  product.device = x.device.index;
  cublaslt::multiply(product);
}

}  // namespace nvfp4::cuda::fp8
