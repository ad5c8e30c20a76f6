// Every kernel of gemm/sm120 on the CPU, lane by lane, with the instruction and with its twin: the
// kernels that a Blackwell GPU runs, without one.
#include <gtest/gtest.h>

#include "backends/cuda/gemm/sm120/omma.cuh"
#include "backends/cuda/gemm/sm120/omma_kernel.cuh"
#include "selftest/fp4_case.cuh"
#include "sm120/case_list.h"
#include "sm120/omma_twin.cuh"
#include "sm120/quantized.h"

namespace nvfp4::cuda::sm120 {
namespace {

struct Emulated {
  template <class T>
  T* put(const std::vector<T>& v) {
    return const_cast<T*>(v.data());  // kernels write to those that are not
  }
  template <class T>
  void get(std::vector<T>&, const T*) {}  // it is there

  struct Arguments {
    const QuantizedX& x;
    const KernelArguments& p;
  };
  template <class Config>
  static void kernel(const void* arguments) {
    const auto& a = *static_cast<const Arguments*>(arguments);
    multiply_tile<Config>(a.x, a.p, emulated::shared_memory());
  }
  template <class Config>
  void run(const QuantizedX& x, const KernelArguments& p, int blocks, bool backwards) {
    const Arguments a{x, p};
    emulated::launch(blocks, Config::kThreads, backwards, kernel<Config>, &a);
  }
};

/// The twin takes long here: some of the cases.
template <int kIndex, class Product>
void run_kernel() {
  constexpr bool kTwin = std::is_same_v<Product, OmmaTwin>;
  for (const test::OmmaCase& c : test::omma_cases(kKernels[kIndex]))
    if (!kTwin || (c.rows < 10 && c.k < 400))
      test::expect_chain<OmmaConfigAt<kIndex, false, Product>>(c, Emulated{});
  if (kTwin) return;
  for (const test::OmmaCase& c : test::omma_swiglu_cases(kKernels[kIndex]))
    test::expect_chain<OmmaConfigAt<kIndex, true, Product>>(c, Emulated{});
  test::expect_quantized<OmmaConfigAt<kIndex, true, Product>>(kKernels[kIndex], Emulated{});
}

template <class Product>
void run_kernel(int of_list) {
  with_index<kKernels>(kKernels + of_list, [](auto index) { run_kernel<index(), Product>(); });
}

class EmulatedSm120Kernels : public testing::TestWithParam<int> {};

TEST_P(EmulatedSm120Kernels, KernelHasTheSumsOfTheInstruction) { run_kernel<Omma>(GetParam()); }

class EmulatedSm120TwinSlow : public testing::TestWithParam<int> {};
TEST_P(EmulatedSm120TwinSlow, KernelHasTheSumsOfTheInstruction) {
  run_kernel<OmmaTwin>(GetParam());
}
TEST(EmulatedSm120Twin, SmallestKernelHasTheSumsOfTheInstruction) { run_kernel<OmmaTwin>(0); }

const auto kAll = testing::Range(0, static_cast<int>(std::size(kKernels)));
const auto kName = [](const auto& test) {
  const Kernel& e = kKernels[test.param];
  return "m" + std::to_string(e.m) + "n" + std::to_string(e.n);
};
INSTANTIATE_TEST_SUITE_P(Tiles, EmulatedSm120Kernels, kAll, kName);
INSTANTIATE_TEST_SUITE_P(Tiles, EmulatedSm120TwinSlow, kAll, kName);

template <int kIndex>
using OfInstruction = OmmaConfigAt<kIndex, false, Omma>;

/// The others up to 16384: CudaOmmaTwinDepths.
TEST(EmulatedSm120Depths, EveryTileHasTheSumsOfTheInstruction) {
  test::expect_depth<OfInstruction, Emulated>(192);
}
TEST(EmulatedSm120DepthsSlow, EveryTileHasTheSumsOfTheInstruction) {
  for (int k = 64; k <= 640; k += 64) test::expect_depth<OfInstruction, Emulated>(k);
  test::expect_depth<OfInstruction, Emulated>(2112);
}

template <class Product, int kA, int kB>
void multiply_on_lanes(const void* c) {
  selftest::multiply_case<Product, kA, kB>(*static_cast<selftest::Fp4Case*>(const_cast<void*>(c)),
                                           static_cast<int>(threadIdx.x));
}
template <int kA, int kB>
void expect_same_instruction(std::mt19937& random) {
  selftest::Fp4Case c{};
  for (int lane = 0; lane < 32; ++lane) {
    for (std::uint32_t& r : c.a[lane]) r = random();
    for (std::uint32_t& r : c.b[lane]) r = random();
    c.a_scales[lane] = random() & 0x77777777;
    c.b_scales[lane] = random() & 0x77777777;
  }
  selftest::Fp4Case of_twin = c;
  emulated::launch(1, 32, false, multiply_on_lanes<Omma, kA, kB>, &c);
  emulated::launch(1, 32, false, multiply_on_lanes<OmmaTwin, kA, kB>, &of_twin);
  EXPECT_EQ(std::memcmp(c.d, of_twin.d, sizeof c.d), 0) << kA << " " << kB;
}

/// The test is that of the selftest: scales of every thread ID, by the instruction and by its twin.
TEST(EmulatedFp4Instruction, TwinTakesScalesOfTheSameLanes) {
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i)
    [&]<int... kThreads>(std::integer_sequence<int, kThreads...>) {
      (expect_same_instruction<kThreads / 4, kThreads % 4>(random), ...);
    }(std::make_integer_sequence<int, 8>{});
}

}  // namespace
}  // namespace nvfp4::cuda::sm120
