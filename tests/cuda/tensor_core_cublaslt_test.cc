// Tests of the code of gemm/sm100 around cuBLASLt, on any GPU: operands in its layouts byte for
// byte, then whole GEMMs with a library that computes on the CPU.
#include <gmock/gmock.h>

#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "backends/cuda/gemm/sm100/kernels.h"
#include "backends/cuda/gemm/sm100/stage.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_cublaslt_test {

class CudaCublasLt : public CudaGemm {
 protected:
  CudaCublasLt() { setenv("NVFP4_CUBLASLT", NVFP4_FAKE_CUBLASLT, 1); }
};

/// "1D block scaling factors layout" of cuBLAS's documentation: 128 rows by 4 blocks are 512 bytes.
std::int64_t tiled_at(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tile = row / 128 * ceil_div(blocks, 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}
/// Returns blocks [first, first + blocks) of a matrix with linear scales.
std::vector<std::uint8_t> tiled(const QuantizedMatrix& q, std::int64_t first, std::int64_t blocks) {
  const std::int64_t rows = q.shape().rows;
  std::vector<std::uint8_t> t(static_cast<std::size_t>(round_up(rows, 128) * round_up(blocks, 4)));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t b = 0; b < blocks; ++b)
      t[static_cast<std::size_t>(tiled_at(r, b, blocks))] =
          q.scales()[r * q.shape().blocks() + first + b];
  return t;
}
/// Bytes of the GPU, which were 0xAA before `fill`.
template <class Fill>
std::vector<std::uint8_t> filled(std::int64_t bytes, const Fill& fill) {
  Matrix host(DType::f32, 1, ceil_div(bytes, 4) + 64);
  std::memset(host.data<char>(), 0xAA, static_cast<std::size_t>(host.cols() * 4));
  Matrix gpu = to_device(host.view(), kGpu);
  fill(gpu.data<std::uint8_t>());
  synchronize(kGpu);
  const Matrix after = to_device(gpu.view(), {});
  for (std::int64_t i = bytes; i < bytes + 16; ++i)
    EXPECT_EQ(after.data<std::uint8_t>()[i], 0xAA) << "behind the end";
  return {after.data<std::uint8_t>(), after.data<std::uint8_t>() + bytes};
}

TEST_F(CudaCublasLt, WeightsAreCodeRowsAndScaleTiles) {
  const std::uint64_t seed = fresh_seed();
  for (const auto& [groups, n, k] :
       {std::tuple{1, 16, 32}, {2, 80, 96}, {1, 128, 64}, {3, 144, 704}, {1, 400, 2048}}) {
    const QuantizedMatrix q = random_weights({.rows = groups * n, .cols = k}, seed);
    const PackedWeights packed = pack_weights(to_device(q.view(), kGpu).view(), {.groups = groups});
    const std::int64_t code_bytes = n * k / 2, blocks = k / 16;
    const std::int64_t scale_bytes = Tiled128x4Scales::bytes(n, blocks);
    for (int g = 0; g < groups; ++g) {
      const auto got = filled(code_bytes + scale_bytes, [&](std::uint8_t* to) {
        QuantizedSpan span;
        span.codes = to;
        span.scales = to + code_bytes;
        span.shape = {.rows = n, .cols = k, .layout = ScaleLayout::tiled_128x4};
        span.device = kGpu;
        cuda::clear_padding(span, {});
        cuda::unpack_fragments({.packed = &packed.impl(), .group = g, .w = span});
      });
      QuantizedMatrix part({.rows = n, .cols = k});
      for (std::int64_t i = 0; i < n * blocks; ++i) {
        part.scales()[i] = q.scales()[g * n * blocks + i];
        for (int j = 0; j < 8; ++j) {
          // Nothing is left of a magnitude under a scale of 0.
          const int code = q.codes()[(g * n * blocks + i) * 8 + j];
          part.codes()[i * 8 + j] =
              static_cast<std::uint8_t>(part.scales()[i] == 0 ? code & 0x88 : code);
        }
      }
      EXPECT_EQ(std::memcmp(got.data(), part.codes(), static_cast<std::size_t>(code_bytes)), 0)
          << n << " " << k << " seed " << seed;
      EXPECT_EQ(std::vector(got.begin() + code_bytes, got.end()), tiled(part, 0, blocks))
          << n << " " << k << " seed " << seed;
    }
  }
}

TEST_F(CudaCublasLt, AnyScalesOfXBecomeTiles) {
  const std::uint64_t seed = fresh_seed();
  for (const auto& [rows, k, groups] :
       {std::tuple{1, 32, 1}, {5, 96, 3}, {128, 64, 1}, {131, 320, 2}, {300, 2048, 1}})
    for (const ScaleLayout layout :
         {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
          ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major}) {
      const QuantizedMatrix q = random_weights({.rows = rows, .cols = groups * k}, seed);
      QuantizedMatrix in({.rows = rows, .cols = groups * k, .layout = layout});
      std::memcpy(in.codes(), q.codes(), static_cast<std::size_t>(q.shape().code_bytes()));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t b = 0; b < q.shape().blocks(); ++b)
          in.scales()[in.shape().scale_offset(r, b)] = q.scales()[r * q.shape().blocks() + b];
      const QuantizedMatrix x = to_device(in.view(), kGpu);
      for (int g = 0; g < groups; ++g)
        EXPECT_EQ(filled(Tiled128x4Scales::bytes(rows, k / 16),
                         [&](std::uint8_t* to) {
                           cuda::sm100::tile_scales(x.view(), g * k / 16, k / 16, to, nullptr);
                         }),
                  tiled(q, g * k / 16, k / 16))
            << rows << " " << k << " " << layout_name(layout) << " seed " << seed;
    }
}

/// With all that goes with a product, of G groups; `own`: each has columns of x of its own.
void expect_products(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t groups, bool own,
                     DType type, std::uint64_t seed) {
  const Weights w(groups, n, k, seed % 3 ? GlobalScope::vector : GlobalScope::tensor, seed);
  const QuantizedX x(m, own ? groups * k : k, seed % 2 ? GlobalScope::vector : GlobalScope::tensor,
                     seed);
  const QuantizedMatrix on_gpu = to_device(x.q.view(), kGpu);
  // Only rows of whole 16 bytes are the library's to write.
  const Placed out = poisoned(type, m + 2, groups * n, groups * n + (seed % 4 ? 5 : 8), kGpu);
  MatrixSpan span = out.span;
  span.rows = m;
  const Array<float> alpha(w.alpha, kGpu), bias(w.bias, kGpu);
  const cuda::Architecture* const named[] = {&cuda::architecture_of("sm100_cublaslt_m128n128k64")};
  const cuda::KernelPlan plan =
      cuda::plan_kernels({.n = n, .k = k, .m = m, .groups = groups, .quantized_x = true},
                         {.major = 10, .minor = 0, .multiprocessors = 148},
                         cuda::kernel_config("sm100_cublaslt_m128n128k64"), named);
  const QuantizedView view = on_gpu.view();
  const std::int64_t bytes = named[0]->staging_bytes(plan.problem);
  Matrix staging = to_device(Matrix(DType::f32, 1, bytes / 4).view(), kGpu);
  cuda::FragmentGemmJob job{.quantized_x = &view, .w = &w.packed.impl(), .out = span};
  job.x = MatrixView(view.codes, DType::bf16, m, view.shape.cols, kDense, kGpu);
  job.x_global = view.global_scale;
  job.x_global_per_row = view.shape.scope == GlobalScope::vector;
  job.alpha = kAlpha;
  job.group_alpha = w.alpha.empty() ? nullptr : alpha.span().data();
  job.bias = w.bias.empty() ? nullptr : bias.span().data();
  job.staging = {staging.data<std::byte>(), static_cast<std::size_t>(bytes)};
  named[0]->launch(plan, job, {});
  synchronize(kGpu);
  const Output result{to_device(out.memory.view(), {}), m, groups * n};
  result.expect_untouched_outside();
  for (std::int64_t g = 0; g < groups; ++g)
    EXPECT_LE(error_of(x, 0, m, own ? g * k : 0, k, w.group(g), result.part(0, m, g * n, n),
                       w.alpha_of(g, kAlpha), w.bias_of(g)),
              1)
        << name_of({n, k}, m, seed) << " group " << g;
}

TEST_F(CudaCublasLt, ResultsOfTheFakeLibraryAreRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const DType type : kTypes)
    for (const auto& [m, n, k] : {std::tuple{1, 16, 32}, {7, 80, 96}, {130, 144, 320}}) {
      expect_products(m, n, k, 1, false, type, ++seed);
      expect_products(m, n, k, 3, false, type, ++seed);
      expect_products(m, n, k, 2, true, type, ++seed);
    }
}

/// A Hopper GPU is told whose kernels those are, before any library is looked for.
TEST_F(CudaCublasLt, AHopperGpuIsRefusedByName) {
  try {
    plan_gemm(
        {.m = 64, .n = 64, .k = 64, .scheme = Scheme::w4a4, .kernel = "sm100_cublaslt_m128n128k64"},
        kGpu);
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("the GPU is sm_90"));
    EXPECT_THAT(e.what(), testing::HasSubstr("run on sm100 only"));
  }
}

}  // namespace nvfp4::test::tensor_core_cublaslt_test
