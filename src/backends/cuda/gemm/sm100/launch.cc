#include "backends/cuda/gemm/sm100/launch.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/make_arguments.h"
#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "backends/cuda/gemm/sm100/kernels.h"
#include "backends/cuda/gemm/sm100/stage.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda::sm100 {
namespace {

bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// Reports whether the library can write out itself: one factor for a whole group, and aligned
/// rows.
bool writes_out(const KernelArguments& p) {
  const std::int64_t sixteen = 16 / dtype_size(p.out_type);
  return p.bias == nullptr && !p.w_global_per_row &&
         (p.x_global == nullptr || !p.x_global_per_row) && is_aligned(p.out) &&
         p.out_stride % sixteen == 0 && p.out_group_cols % sixteen == 0;
}

std::int32_t library_type(DType type) {
  return type == DType::f32    ? cublaslt::kReal32
         : type == DType::bf16 ? cublaslt::kRealBf16
                               : cublaslt::kReal16;
}

}  // namespace

void launch(const KernelPlan&, const FragmentGemmJob& job, std::span<std::byte>) {
  const QuantizedView& x = *job.quantized_x;
  const PackedStorage& w = *job.w;
  const std::int64_t rows = x.shape.rows, n = w.rows(), k = w.cols(), blocks = k / 16;
  if (rows == 0) return;
  require<ShapeError>(is_aligned(x.codes), "gemm: x.codes = {}, must be aligned to 16 bytes",
                      static_cast<const void*>(x.codes));
  KernelArguments p = arguments_of(job);
  p.factor /= kFragmentUnit;  // these sums have unit 1
  auto* const staging = reinterpret_cast<std::uint8_t*>(job.staging.data());
  const Staging at = staging_of(rows, n, k);
  const bool sliced = x.shape.cols != k;
  const bool as_it_is =
      x.shape.layout == ScaleLayout::tiled_128x4 && !sliced && is_aligned(x.scales);
  const cudaStream_t stream = stream_of(job.stream);
  QuantizedSpan of_group;
  of_group.codes = staging + at.codes;
  of_group.scales = staging + at.scales;
  of_group.shape = {.rows = n, .cols = k, .layout = ScaleLayout::tiled_128x4};
  of_group.device = x.device;
  const bool direct = writes_out(p);
  auto* const sums = reinterpret_cast<float*>(staging + at.sums);
  for (std::int64_t group = 0; group < w.groups(); ++group) {
    clear_padding(of_group, job.stream);
    unpack_fragments({.packed = &w, .group = group, .w = of_group, .stream = job.stream});
    if (!as_it_is && (sliced || group == 0))
      tile_scales(x, sliced ? group * blocks : 0, blocks, staging + at.x_scales, stream);
    cublaslt::Product product{.n = n,
                              .m = rows,
                              .k = k,
                              .w = of_group.codes,
                              .w_scales = of_group.scales,
                              .x = x.codes + (sliced ? group * k / 2 : 0),
                              .x_stride = x.shape.cols,
                              .x_scales = as_it_is ? x.scales : staging + at.x_scales,
                              .out = sums,
                              .out_stride = n,
                              .workspace = staging + at.workspace,
                              .workspace_bytes = static_cast<std::size_t>(kLibraryBytes),
                              .stream = stream,
                              .device = x.device.index};
    const int g = static_cast<int>(group);
    if (!direct) {
      cublaslt::multiply(product);
      finish(p, g, sums, stream);
      continue;
    }
    auto* const factors = reinterpret_cast<float*>(staging + at.factors);
    set_factors(p, g, factors, stream);
    product.out =
        static_cast<std::byte*>(p.out) + group * p.out_group_cols * dtype_size(p.out_type);
    product.out_type = library_type(p.out_type);
    product.out_stride = p.out_stride;
    product.factors = factors;
    cublaslt::multiply(product);
  }
}

}  // namespace nvfp4::cuda::sm100
