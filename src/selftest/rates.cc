// Measures the rates of conversions and GEMMs on this machine. No other part reads a clock.
#include "selftest/rates.h"

#include <chrono>
#include <cstring>

#include "core/parallel_for.h"
#include "nvfp4/gemm.h"
#include "selftest/inputs.h"

namespace nvfp4::selftest {
namespace {

constexpr double kPackedBytes = 0.5 + 1.0 / kBlock;  ///< bytes of an element: code and block scale
constexpr double kEnough = 0.2;                      ///< duration of a measurement in seconds

/// Operations of a multiprocessor per clock: BF16 products and additions without sparsity, with
/// FP32 sums. Source: NVIDIA's architecture white papers, peak rates divided by multiprocessors and
/// boost clock: A100 312 TFLOP/s, RTX 3090 71, RTX 4090 165, H100 SXM 989, B200 2250, RTX 5090 209.
struct TensorRate {
  std::string_view architecture;
  double per_clock;
};
constexpr TensorRate kTensorRates[] = {{"sm_80", 2048}, {"sm_86", 512},   {"sm_89", 512},
                                       {"sm_90", 4096}, {"sm_100", 8192}, {"sm_120", 512}};

struct Limit {
  double value = 0;
  std::string of;
};

Limit tensor_limit(const SelftestGpu& gpu) {
  for (const TensorRate& r : kTensorRates)
    if (r.architecture == gpu.info.architecture)
      return {r.per_clock * gpu.multiprocessors * gpu.clock_mhz * 1e-6,
              "BF16 tensor cores at the highest clock"};
  return {};
}

class Meter {
 public:
  Meter(const Subject& subject, SelftestReport& report) : subject_(subject), report_(report) {}

  /// Returns the seconds of a call: the best of several rounds of `calls` calls.
  template <class Call>
  double seconds(std::int64_t calls, const Call& call) const {
    using Clock = std::chrono::steady_clock;
    call(0);
    synchronize(subject_.device);
    double best = 1e30, total = 0;
    for (int round = 0; round < 3 || (total < kEnough && round < 50); ++round) {
      const auto start = Clock::now();
      for (std::int64_t i = 0; i < calls; ++i) call(i);
      synchronize(subject_.device);
      const double s = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::min(best, s / static_cast<double>(calls));
      total += s;
    }
    return best;
  }
  void add(std::string name, double value, std::string unit, const Limit& limit) {
    report_.rates.push_back(
        {subject_.name, std::move(name), value, std::move(unit), limit.value, limit.of});
  }

 private:
  const Subject& subject_;
  SelftestReport& report_;
};

/// Returns a matrix of repeated rows. Only their number matters.
Matrix many_rows(std::int64_t rows, std::int64_t cols, std::uint64_t seed, Device device) {
  constexpr std::int64_t kFresh = 64;
  Matrix m(DType::bf16, rows, cols);
  const Matrix fresh = random_matrix(DType::bf16, std::min(rows, kFresh), cols, seed);
  const auto row_bytes = static_cast<std::size_t>(cols * 2);
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(m.data<std::uint16_t>() + r * cols, fresh.data<std::uint16_t>() + r % kFresh * cols,
                row_bytes);
  return to_device(m.view(), device);
}

/// Copies a matrix. On the CPU it uses all threads, like the operations.
void copy_all(const Matrix& from, Matrix& to) {
  if (from.device().type == DeviceType::cuda) return copy(from.view(), to.span());
  constexpr std::int64_t kParts = 64;
  const std::int64_t bytes = from.view().size() * dtype_size(from.dtype());
  parallel_for(kParts, [&](std::int64_t i) {
    const std::int64_t begin = bytes * i / kParts, end = bytes * (i + 1) / kParts;
    std::memcpy(to.data<std::byte>() + begin, from.data<std::byte>() + begin,
                static_cast<std::size_t>(end - begin));
  });
}

/// Measures conversions. Returns the limit of the memory.
Limit measure_conversions(const Subject& s, const Sizes& sizes, const Limit& memory, Meter& meter) {
  const Matrix x = many_rows(sizes.rows, sizes.cols, 1, s.device);
  Matrix back(DType::bf16, sizes.rows, sizes.cols, s.device);
  QuantizedMatrix q({.rows = sizes.rows, .cols = sizes.cols}, s.device);
  const auto elements = static_cast<double>(x.view().size());
  const auto rate = [&](double bytes, const auto& call) {
    return bytes * elements * 1e-9 / meter.seconds(1, call);
  };
  const auto copy = [&](std::int64_t) { copy_all(x, back); };
  const double copied = std::max(rate(4, copy), rate(4, copy));
  meter.add("copy", copied, "GB/s", memory);
  Limit limit = memory.value > 0 ? memory : Limit{copied, "a copy"};
  const GlobalScale one;
  for (const Quantizer quantizer : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse})
    meter.add(fmt::format("quantize {}", quantizer_name(quantizer)),
              rate(2 + kPackedBytes,
                   [&](std::int64_t) {
                     quantize_into(
                         x.view(), q.span(),
                         {.quantizer = quantizer, .global = {&one, 1}, .backend = s.backend});
                   }),
              "GB/s", limit);
  meter.add("dequantize",
            rate(2 + kPackedBytes,
                 [&](std::int64_t) { dequantize_into(q.view(), back.span(), s.backend); }),
            "GB/s", limit);
  return limit;
}

void measure_products(const Subject& s, const Sizes& sizes, const Limit& memory,
                      const Limit& arithmetic, Meter& meter) {
  std::vector<PackedWeights> weights;
  {
    const Matrix w = many_rows(sizes.n, sizes.k, 2, s.device);
    for (std::int64_t i = 0; i < sizes.copies; ++i)
      weights.push_back(
          pack_weights(w.view(), {.quantizer = Quantizer::max, .backend = s.backend}));
  }
  const auto product = [&](Scheme scheme, std::int64_t m) {
    const Matrix x = many_rows(m, sizes.k, 3, s.device);
    const QuantizedMatrix x4 =
        quantize(x.view(), {.quantizer = Quantizer::max, .scope = GlobalScope::vector});
    Matrix out(DType::bf16, m, sizes.n, s.device);
    const GemmPlan plan = plan_gemm(weights[0], {.m = m, .scheme = scheme, .backend = s.backend});
    const Buffer workspace(plan.workspace_bytes(), s.device);
    const double t = meter.seconds(sizes.copies, [&](std::int64_t i) {
      GemmArguments a{.weights = weights[static_cast<std::size_t>(i)], .out = out.span()};
      if (scheme == Scheme::w4a4)
        a.x = x4.view();
      else
        a.x = x.view();
      gemm(plan, a,
           {static_cast<std::byte*>(workspace.data()),
            static_cast<std::size_t>(plan.workspace_bytes())});
    });
    const std::string name =
        fmt::format("{}, {} row{} x [{}, {}]", scheme == Scheme::w4a4 ? "W4A4" : "W4A16", m,
                    m == 1 ? "" : "s", sizes.n, sizes.k);
    const auto weight = static_cast<double>(sizes.n * sizes.k);
    if (m <= 16)
      meter.add(name, weight * kPackedBytes * 1e-9 / t, "GB/s", memory);
    else
      meter.add(name, 2 * weight * static_cast<double>(m) * 1e-12 / t, "TFLOP/s", arithmetic);
  };
  for (const std::int64_t m : sizes.w4a16_rows) product(Scheme::w4a16, m);
  for (const std::int64_t m : sizes.w4a4_rows) product(Scheme::w4a4, m);
}

}  // namespace

const Sizes& sizes_of(Device device, std::string_view backend) {
  static const Sizes reference = {128, 8192, 128, 8192, 1, {1}, {1}};
  static const Sizes cpu = {4096, 8192, 16384, 8192, 1, {1, 64}, {64}};
  static const Sizes gpu = {16384, 8192, 8192, 8192, 10, {1, 16, 64, 256, 4096}, {16, 4096}};
  return device.type == DeviceType::cuda ? gpu : backend == kReference ? reference : cpu;
}

void measure(const Subject& s, const Sizes& sizes, SelftestReport& report) {
  Meter meter(s, report);
  Limit memory, arithmetic;
  for (const SelftestGpu& gpu : report.gpus)
    if (gpu.info.device == s.device) {
      if (gpu.memory_gb_s > 0) memory = {gpu.memory_gb_s, "memory clock and bus width"};
      arithmetic = tensor_limit(gpu);
    }
  memory = measure_conversions(s, sizes, memory, meter);
  measure_products(s, sizes, memory, arithmetic, meter);
}

}  // namespace nvfp4::selftest
