// Measures NVFP4 GEMMs on Hopper against cuBLAS BF16 and a read-only stream of the weights' bytes.
// All are measured in the same run.
//
// usage: nvfp4_cuda_gemm_bench [--shape NxK|known|llama|models|fitted|reported]... [--rows M,M,...]
//                              [--kernels each] [--arch sm80] [--arithmetic fp8] [--json FILE]
//
// --shape: any shape, or a list of gemm_shapes.h; the default is the known shapes. --kernels each
// also measures every kernel, launched as by the cost model. Only --json writes a file.
// --arithmetic fp8: our GEMM in FP8, and cuBLASLt's with weights that are in FP8 already.
// --arch sm80: the kernels of every GPU from sm_80 on, as NVFP4_GEMM_ARCHITECTURE selects them.
// The copies of the weights have at least 340 MB together; from 1024 rows on there are two copies.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../bench_matrix.h"
#include "backends/cuda/gemm/fp8/fp8.h"
#include "backends/cuda/gemm/fp8/launch.h"
#include "backends/cuda/gemm/fp8/stage.h"
#include "cublas.h"
#include "gemm_arguments.h"
#include "kernel_search.h"
#include "nvfp4/gemm.h"
#include "program.h"
#include "stream_read.h"

namespace nvfp4 {
namespace {

const Device kGpu = Device::cuda();
constexpr std::int64_t kManyRows = 1024;

/// The weights of one shape: copies as NVFP4 and as BF16.
struct Weights {
  std::vector<PackedWeights> packed;
  PackedWeights reference;  ///< packed on the CPU
  Matrix dense;             ///< copies, one below the other
  std::int64_t n, k, dense_copies;

  Weights(std::int64_t n_, std::int64_t k_) : n(n_), k(k_) {
    const Matrix host = bench::gaussian(DType::bf16, n, k);
    const QuantizedMatrix q = quantize(host.view(), {.quantizer = Quantizer::max});
    reference = pack_weights(q.view());
    const PackedShape one{.rows = n, .cols = k, .device = kGpu};
    const auto copies = static_cast<std::size_t>(ceil_div(bench::kRotated, one.bytes()) + 1);
    for (std::size_t i = 0; i < copies; ++i)
      packed.push_back(pack_weights(q.view(), {.device = kGpu}));
    dense_copies = ceil_div(bench::kRotated, n * k * 2) + 1;
    dense = Matrix(DType::bf16, dense_copies * n, k, kGpu);
    Matrix values(DType::bf16, n, k);
    dequantize_into(q.view(), values.span());
    for (std::int64_t i = 0; i < dense_copies; ++i) copy(values.view(), dense_span(i));
    synchronize(kGpu);
  }
  MatrixSpan dense_span(std::int64_t i) {
    MatrixSpan s = dense.span();
    s.data = static_cast<char*>(s.data) + i * n * k * 2;
    s.rows = n;
    return s;
  }
};

MatrixView first_rows(const Matrix& x, std::int64_t rows) {
  MatrixView v = x.view();
  v.rows = rows;
  return v;
}

/// Returns ‖out - FP32 GEMM‖ / ‖FP32 GEMM‖ over at most 16 rows.
double relative_error(const Matrix& x, const Weights& w, const Matrix& out) {
  const std::int64_t rows = std::min<std::int64_t>(x.rows(), 16);
  const Matrix host_x = to_device(first_rows(x, rows), Device{});
  const Matrix host_out = to_device(first_rows(out, rows), Device{});
  Matrix exact(DType::f32, rows, w.n);
  gemm(plan_gemm(w.reference, {.m = rows, .out = DType::f32}),
       {.x = host_x.view(), .weights = w.reference, .out = exact.span()});
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < rows * w.n; ++i) {
    const double e = exact.data<float>()[i];
    const double d = BF16{host_out.data<std::uint16_t>()[i]}.to_float() - e;
    error += d * d;
    norm += e * e;
  }
  return std::sqrt(error / norm);
}

/// Returns the time of cuBLASLt's FP8 with the weights that a GEMM of ours left in the workspace. x
/// is quantized in each call.
double time_fp8_peer(const MatrixView& x, const MatrixSpan& out, std::int64_t n, std::byte* staging,
                     int replays) {
  const std::int64_t m = x.rows, k = x.cols;
  const cuda::fp8::Staging at = cuda::fp8::staging_of(m, n, k, cuda::fp8::kLibraryBytes);
  auto* const codes = reinterpret_cast<std::uint8_t*>(staging + at.x);
  auto* const factors = reinterpret_cast<float*>(staging + at.x_factors);
  return bench::measure(
      2,
      [&](std::int64_t, Stream s) {
        cuda::fp8::quantize_rows(x, codes, factors, static_cast<cudaStream_t>(s.handle));
        cuda::cublaslt::Product product = cuda::fp8::product_of(m, n, k, DType::bf16);
        product.w = staging + at.w;
        product.w_scales = staging + at.w_factors;
        product.x = codes;
        product.x_scales = factors;
        product.out = out.data;
        product.workspace = staging + at.library;
        product.stream = s.handle;
        cuda::cublaslt::multiply(product);
      },
      replays);
}

struct Times {
  std::string plan;  ///< the kernel that the library chooses
  double ours = 0, cublas = 0, fp8_peer = 0, error = 0;
  std::vector<std::pair<std::string, double>> kernels;
};

Times time_rows(Weights& w, std::int64_t m, bench::Cublas& cublas,
                const bench::GemmBenchArguments& arguments) {
  const Matrix x = to_device(bench::gaussian(DType::bf16, m, w.k, 7).view(), kGpu);
  Matrix out(DType::bf16, m, w.n, kGpu);
  // It holds flags, zero at first, and sums of stream-K. Kernels selected by name may need more.
  const std::int64_t sums = std::int64_t{arguments.each_kernel ? 40 : 6} << 20;
  const GemmDescription d{.m = m,
                          .arithmetic = arguments.fp8 ? Arithmetic::fp8 : Arithmetic::exact,
                          .max_workspace_bytes = sums};
  const GemmPlan plan = plan_gemm(w.packed[0], d);
  static Matrix workspace;
  if (const std::int64_t bytes = std::max(sums, plan.workspace_bytes());
      workspace.cols() * 4 < bytes)
    workspace = Matrix(DType::f32, 1, ceil_div(bytes, 4), kGpu);
  const std::span<std::byte> space(workspace.data<std::byte>(),
                                   static_cast<std::size_t>(workspace.cols() * 4));
  const auto some = [&](std::int64_t copies) { return m >= kManyRows ? 2 : copies; };
  const int replays = m >= kManyRows ? 7 : 15;
  const auto multiply = [&](const PackedWeights& packed, const std::string& kernel, Stream s) {
    GemmDescription named = d;
    named.kernel = kernel;
    gemm(plan_gemm(packed, named), {.x = x.view(), .weights = packed, .out = out.span()}, space, s);
  };
  const auto ours = [&](const std::string& kernel) {
    return bench::measure(
        some(static_cast<std::int64_t>(w.packed.size())),
        [&](std::int64_t i, Stream s) {
          multiply(w.packed[static_cast<std::size_t>(i)], kernel, s);
        },
        replays);
  };
  Times t;
  bench::check(cudaMemset(out.data<void>(), 0xFF, static_cast<std::size_t>(m * w.n * 2)));
  multiply(w.packed[0], {}, {});
  synchronize(kGpu);
  t.plan = to_string(plan);
  t.error = relative_error(x, w, out);
  t.ours = ours({});
  if (cublas.available())
    t.cublas = bench::measure(
        some(w.dense_copies),
        [&](std::int64_t i, Stream s) {
          cublas.multiply(x.view(), w.dense_span(i), out.span(), s);
        },
        replays);
  if (plan.kernel().starts_with("fp8_cublaslt"))
    t.fp8_peer =
        time_fp8_peer(x.view(), out.span(), w.n,
                      space.data() + plan.workspace_bytes() -
                          cuda::fp8::staging_of(m, w.n, w.k, cuda::fp8::kLibraryBytes).bytes,
                      replays);
  const auto exists = [&](const std::string& kernel) {
    try {
      multiply(w.packed[0], kernel, {});
      return true;
    } catch (const ValueError&) {
      return false;
    }
  };
  if (!arguments.each_kernel) return t;
  if (!arguments.architecture.empty()) {
    for (const std::string& kernel : bench::kernel_names(arguments.architecture, m))
      if (exists(kernel)) t.kernels.emplace_back(kernel, ours(kernel));
    return t;
  }
  cudaDeviceProp gpu{};
  bench::check(cudaGetDeviceProperties(&gpu, 0));
  for (const auto& [kernel, us] : bench::time_each(
           {.n = w.n,
 .k = w.k,
 .m = m,
 .multiprocessors = gpu.multiProcessorCount,
 .stream_k = true},
           [&](const bench::KernelConfig& k) { return exists(cuda::kernel_name(k)); },
           [&](const bench::KernelConfig& k) { return ours(cuda::kernel_name(k)); }))
    t.kernels.emplace_back(cuda::kernel_name(kernel), us);
  return t;
}

/// Returns the target for dense layers: a multiple of the stream for few rows, of cuBLAS for many.
double aim_of(std::int64_t m, double floor, double cublas) {
  return m <= 16 ? floor * 1.35 : m <= 64 ? floor * 1.8 : cublas * 1.05;
}

nlohmann::json run_shape(const bench::GemmBenchArguments& arguments, const bench::GemmShape& s,
                         bench::Cublas& cublas) {
  const std::int64_t n = s.n, k = s.k;
  Weights w(n, k);
  Buffer never(16, kGpu);
  const double floor = bench::measure(
      static_cast<std::int64_t>(w.packed.size()), [&](std::int64_t i, Stream stream) {
        const PackedWeights& p = w.packed[static_cast<std::size_t>(i)];
        bench::stream_read(reinterpret_cast<const std::uint8_t*>(p.memory().data()), p.bytes(),
                           static_cast<unsigned*>(never.data()),
                           static_cast<cudaStream_t>(stream.handle));
      });
  fmt::print("== {}x{}: {:.2f} MB, read in {:.2f} us ({:.2f} TB/s)\n", n, k,
             static_cast<double>(w.packed[0].bytes()) * 1e-6, floor,
             static_cast<double>(w.packed[0].bytes()) / floor * 1e-6);
  nlohmann::json shape{{"n", n}, {"k", k}, {"bytes", w.packed[0].bytes()}, {"read_us", floor}};
  for (const std::int64_t m : arguments.rows) {
    const Times t = time_rows(w, m, cublas, arguments);
    const double aim = aim_of(m, floor, t.cublas);
    const double tflops = 2e-6 * static_cast<double>(m * n * k) / t.ours;
    fmt::print(
        "  M={:<5} ours {:>8.2f} us {:>6.1f} TFLOP/s {:>5.2f} x read  cuBLAS BF16 {:>8.2f} "
        "us {:>5.2f} x  error {:.2e}  aim {:>8.2f} {}\n",
        m, t.ours, tflops, t.ours / floor, t.cublas, t.ours / t.cublas, t.error, aim,
        t.ours <= aim ? "reached" : "missed");
    if (t.fp8_peer > 0)
      fmt::print("  M={:<5} cuBLASLt FP8 {:>8.2f} us {:>5.2f} x\n", m, t.fp8_peer,
                 t.ours / t.fp8_peer);
    fmt::print("  M={:<5} {}\n", m, t.plan);
    nlohmann::json kernels;
    if (!t.kernels.empty()) fmt::print("  M={:<5}", m);
    for (const auto& [kernel, us] : t.kernels) {
      fmt::print(" {}={:.2f}", kernel, us);
      kernels[kernel] = us;
    }
    if (!t.kernels.empty()) fmt::print("\n");
    std::fflush(stdout);
    shape["rows"].push_back({{"m", m},
                             {"plan", t.plan},
                             {"us", t.ours},
                             {"cublas_bf16_us", t.cublas},
                             {"cublaslt_fp8_us", t.fp8_peer},
                             {"relative_error", t.error},
                             {"kernels", kernels},
                             {"aim_us", aim}});
  }
  return shape;
}

void run(const bench::GemmBenchArguments& arguments) {
  if (!arguments.architecture.empty())
    setenv("NVFP4_GEMM_ARCHITECTURE", arguments.architecture.c_str(), 1);
  bench::Cublas cublas;
  if (!cublas.available()) fmt::print("cuBLAS was not found\n");
  nlohmann::json j = bench::describe_gpu();
  for (const bench::GemmShape& shape : arguments.shapes) {
    j["shapes"].push_back(run_shape(arguments, shape, cublas));
    bench::write_json(arguments.json, j);  // the results so far, in case the run is interrupted
  }
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_gemm_bench", [&] {
    nvfp4::run(nvfp4::bench::parse_gemm_arguments({argv + 1, argv + argc}));
  });
}
