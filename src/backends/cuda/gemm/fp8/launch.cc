#include "backends/cuda/gemm/fp8/launch.h"

#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/fp8/stage.h"
#include "backends/cuda/gemm/fragment_layout.h"
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

/// The operands in the workspace. The constructor enqueues the kernels that write them.
struct Operands {
  StagedWeights w;
  std::uint8_t* x;
  float* x_factors;
  std::byte* library;

  Operands(const FragmentGemmJob& job, const Staging& at) {
    require_aligned("x", job.x.data, job.x.stride, job.x.dtype);
    std::byte* const from = job.staging.data();
    w = {.codes = reinterpret_cast<std::uint8_t*>(from + at.w),
         .powers = reinterpret_cast<float*>(from + at.w_powers),
         .factors = reinterpret_cast<float*>(from + at.w_factors),
         .bias = reinterpret_cast<std::uint16_t*>(from + at.bias)};
    x = reinterpret_cast<std::uint8_t*>(from + at.x);
    x_factors = reinterpret_cast<float*>(from + at.x_factors);
    library = from + at.library;
    const cudaStream_t stream = stream_of(job.stream);
    quantize_rows(job.x, x, x_factors, stream);
    decode_weights(arguments_of(job), w, stream);
  }
};

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
  require_aligned("out", job.out.data, job.out.stride, job.out.dtype);
  const std::int64_t rows = job.x.rows, n = job.w->rows(), k = job.w->cols();
  const Operands o(job, staging_of(rows, n, k, kLibraryBytes));
  cublaslt::Product product = product_of(rows, n, k, job.out.dtype);
  product.planned_m = plan.problem.m;
  product.w = o.w.codes;
  product.w_scales = o.w.factors;
  product.x = o.x;
  product.x_scales = o.x_factors;
  product.out = job.out.data;
  product.out_stride = job.out.stride;
  product.bias = job.bias == nullptr ? nullptr : o.w.bias;
  product.workspace = o.library;
  product.stream = stream_of(job.stream);
  product.device = job.x.device.index;
  cublaslt::multiply(product);
}

void launch_mma(const KernelPlan& plan, const FragmentGemmJob& job, std::span<std::byte>) {
  KernelArguments p = arguments_of(job);
  const Operands o(job, staging_of(job.x.rows, p.n, p.k));
  p.weights = o.w.codes;
  p.x = o.x;
  p.m_end = p.m_total;
  p.alpha = nullptr;
  p.factor = 1 / kFragmentUnit;
  p.w_global = o.w.factors;
  p.x_global = o.x_factors;
  p.w_global_per_row = p.x_global_per_row = true;
  KernelProblem problem = plan.problem;
  problem.m = p.m_end;  // a plan also serves fewer rows
  multiply_by_mma(p, grid_of(problem, mma_blocks(problem)), stream_of(job.stream));
}

}  // namespace nvfp4::cuda::fp8
