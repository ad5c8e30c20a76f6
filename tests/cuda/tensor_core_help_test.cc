#include "backends/cuda/runtime.h"
#include "nvfp4/layers.h"
#include "tensor_core_cases.h"

/// Products whose blocks leave a part of their depth to others.
namespace nvfp4::test::tensor_core_help_test {

cuda::KernelProblem problem_of(std::int64_t n, std::int64_t k, std::int64_t rows) {
  return {
      .n = n, .k = k, .m = rows, .multiprocessors = cuda::multiprocessors(kGpu), .stream_k = true};
}

/// Flags and sums of stream-K, and room for x of W4A4.
struct Sums {
  static constexpr std::int64_t kBytes = cuda::kStreamKFlagBytes + cuda::kStreamKSumBytes;
  Matrix memory{DType::f32, 1, kBytes / 4 + (1 << 20), kGpu};

  char* data() { return memory.data<char>(); }
  std::span<std::byte> span() {
    return {memory.data<std::byte>(), static_cast<std::size_t>(memory.cols() * 4)};
  }
};

/// NaN in all sums.
void poison_sums(Sums& sums) {
  ASSERT_EQ(cudaMemset(sums.data() + cuda::kStreamKFlagBytes, 0xFF, cuda::kStreamKSumBytes),
            cudaSuccess);
}

/// Every block's slice, and nothing else, was handed on; the flags are ready for the next product.
void expect_used(Sums& sums, const cuda::KernelProblem& p, const KernelConfig& t,
                 const std::string& what) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(Sums::kBytes / 4), 1);
  ASSERT_EQ(cudaMemcpy(words.data(), sums.data(), words.size() * 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
  const auto flags_end = words.begin() + cuda::kStreamKFlagBytes / 4;
  const auto used_end = flags_end + cuda::block_count(p, t) * cuda::stream_k_sum_bytes(t) / 4;
  const auto is_poison = [](std::uint32_t w) { return w == 0xFFFFFFFF; };
  EXPECT_TRUE(std::all_of(words.begin(), flags_end, [](std::uint32_t f) { return f == 0; }))
      << what;
  EXPECT_TRUE(std::none_of(flags_end, used_end, is_poison)) << what;
  EXPECT_TRUE(std::all_of(used_end, words.end(), is_poison)) << what;
}

std::vector<KernelConfig> helped_tiles(const Weights& w, std::int64_t rows) {
  std::vector<KernelConfig> tiles;
  const cuda::KernelProblem p = problem_of(w.n, w.k, rows);
  for (const int tokens : {16, 32, 64})
    for (const int splits : {1, 2, 4})
      for (const int help : {1, 2, 3, 6, 7})
        if (const KernelConfig t{.m = tokens, .n = 64, .split_k = splits, .stream_k_steps = help};
            cuda::can_stream_k(p, t))
          tiles.push_back(t);
  return tiles;
}

TEST_F(CudaGemm, HelpersAddTheirParts) {
  if (tests_others()) GTEST_SKIP() << "stream-K, of sm_90";
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  Sums sums;
  int count = 0;
  // From one block to as many as there are helpers and more.
  for (const Shape& s : {Shape{8, 2048}, Shape{200, 4096}, Shape{1000, 1024}, Shape{4296, 2048}})
    for (const std::int64_t m : {9, 33, 64, 70}) {
      const Weights w(1, s.n, s.k, GlobalScope::vector, seed);
      const DenseX x(m, s.k, m % 2 == 0 ? DType::bf16 : DType::f16, seed);
      for (KernelConfig t : helped_tiles(w, m)) {
        t.launch_dependents_step = t.m < 64 ? count % 5 : 0;
        t.prefetch_stages = stages(++count % 4);
        if (test_stride() > 1 && count % 7 != 0) continue;
        const std::string what = name_of(s, m, seed) + " " + name_of(t);
        poison_sums(sums);
        expect_product(x, w, count % 3 ? DType::bf16 : DType::f32,
                       {.kernel = t, .workspace = sums.span()}, 8 * (count % 2) + count % 3, what);
        expect_used(sums, problem_of(s.n, s.k, m), t, what);
      }
    }
  EXPECT_GT(count, 100);
}

TEST_F(CudaGemm, HelpersAddPartsOfQuantizedRows) {
  if (tests_others()) GTEST_SKIP() << "stream-K, of sm_90";
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  Sums sums;
  const Weights w(1, 4296, 2048, GlobalScope::tensor, seed);
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
    for (const KernelConfig& t : helped_tiles(w, 50))
      expect_product(QuantizedX(50, 2048, scope, seed), w, DType::bf16,
                     {.kernel = t, .workspace = sums.span()}, 8, name_of(t));
}

/// One product after the other has the same memory for its sums, and reads what the last wrote.
TEST_F(CudaGemm, HelpersOfOneProductAfterTheOther) {
  if (tests_others()) GTEST_SKIP() << "stream-K, of sm_90";
  constexpr std::int64_t kRowsOfX = 16, kSize = 3072;
  constexpr int kProducts = 4;
  const std::uint64_t seed = 10 * fresh_seed();
  Sums sums;
  std::vector<Weights> weights;
  for (int i = 0; i < kProducts; ++i)
    weights.emplace_back(1, kSize, kSize, GlobalScope::tensor,
                         seed + static_cast<std::uint64_t>(i));
  const Matrix poison = poisoned(DType::bf16, kRowsOfX, kSize, kSize, kGpu).memory;
  std::vector<Matrix> x;
  for (int i = 0; i <= kProducts; ++i) x.emplace_back(DType::bf16, kRowsOfX, kSize, kGpu);
  const DenseX first(kRowsOfX, kSize, DType::bf16, seed);
  copy(first.part(0, kRowsOfX, 0, kSize), x[0].span());
  const auto last_of = [&](const KernelConfig& t, bool one_by_one) {
    for (int i = 1; i <= kProducts; ++i) copy(poison.view(), x[static_cast<std::size_t>(i)].span());
    for (std::size_t i = 0; i < kProducts; ++i) {
      multiply(x[i].view(), weights[i].packed, x[i + 1].span(),
               {.alpha = 0.02f, .kernel = t, .workspace = sums.span()});
      if (one_by_one) synchronize(kGpu);
    }
    return to_device(x[kProducts].view(), {});
  };
  for (KernelConfig t : {KernelConfig{16, 64, 2}, KernelConfig{32, 64, 1}, KernelConfig{32, 64, 2},
                         KernelConfig{64, 64, 1}, KernelConfig{64, 64, 2}})
    for (const int help : {1, 2, 5})
      for (const int early : {0, 1, 3}) {
        t.stream_k_steps = help;
        t.prefetch_stages = stages(early);
        if (t.m < 64) t.launch_dependents_step = help + early;
        const cuda::KernelProblem problem = problem_of(kSize, kSize, kRowsOfX);
        if (!cuda::can_stream_k(problem, t) || (test_stride() > 1 && early != 1)) continue;
        poison_sums(sums);
        const Matrix want = last_of(t, true);
        for (std::int64_t i = 0; i < kRowsOfX * kSize; ++i)
          ASSERT_TRUE(std::isfinite(BF16{want.data<std::uint16_t>()[i]}.to_float())) << name_of(t);
        for (int repeat = 0; repeat < repeats(10); ++repeat)
          EXPECT_TRUE(same_bits(last_of(t, false), want)) << name_of(t);
        expect_used(sums, problem, t, name_of(t));
      }
}

TEST_F(CudaGemm, RefusesHelpWhereThereIsNone) {
  if (tests_others()) GTEST_SKIP() << "stream-K, of sm_90";
  Sums sums;
  const Weights w(1, 640, 2048, GlobalScope::tensor, 2), odd(1, 640, 2064, GlobalScope::tensor, 2);
  Matrix x(DType::bf16, 40, 2064, kGpu), out(DType::bf16, 40, 640, kGpu);
  const auto product = [&](const Weights& weights, const KernelConfig& t,
                           std::span<std::byte> workspace, bool batch_invariant = false) {
    MatrixView view = x.view();
    view.cols = weights.k;
    multiply(view, weights.packed, out.span(),
             {.batch_invariant = batch_invariant, .kernel = t, .workspace = workspace});
  };
  KernelConfig t{.m = 64, .n = 64, .stream_k_steps = 2};
  EXPECT_NO_THROW(product(w, t, sums.span()));
  EXPECT_THROW(product(w, t, {}), ValueError);
  EXPECT_THROW(product(w, t, sums.span(), true), ValueError);
  EXPECT_THROW(product(odd, t, sums.span()), ValueError);  // the last step is not whole
  t.stream_k_steps = 8;                                    // of 8
  EXPECT_THROW(product(w, t, sums.span()), ValueError);
  for (const KernelConfig& none : {KernelConfig{.m = 64, .n = 128, .stream_k_steps = 2},
                                   KernelConfig{.m = 8, .n = 64, .split_k = 2, .stream_k_steps = 2},
                                   KernelConfig{.m = 16, .n = 64, .stream_k_steps = 2}})
    EXPECT_THROW(product(w, none, sums.span()), ValueError);
  EXPECT_NO_THROW(product(w, {}, sums.span()));
  // All blocks that a GPU takes at once have tiles.
  const KernelConfig two{.m = 64, .n = 64, .stream_k_steps = 2};
  const std::int64_t n = 64 * cuda::multiprocessors(kGpu);
  const Weights many(1, n, 2048, GlobalScope::tensor, 2);
  Matrix wide(DType::bf16, 40, n, kGpu);
  MatrixView view = x.view();
  view.cols = many.k;
  EXPECT_THROW(multiply(view, many.packed, wide.span(), {.kernel = two, .workspace = sums.span()}),
               ValueError);
  const Weights groups(2, 320, 2048, GlobalScope::tensor, 2);
  EXPECT_THROW(multiply(view, groups.packed, out.span(),
                        {.kernel = two, .workspace = sums.span(), .form = GemmForm::every_group}),
               ValueError);
  synchronize(kGpu);
}

/// A layer hands its workspace to the product.
TEST_F(CudaGemm, HelpersWorkForALayer) {
  if (tests_others()) GTEST_SKIP() << "stream-K, of sm_90";
  constexpr std::int64_t kN = 5120, kK = 8192, kM = 64;
  const cuda::KernelProblem p = problem_of(kN, kK, kM);
  const KernelConfig tile = cuda::choose_kernel(p);
  if (tile.stream_k_steps == 0) GTEST_SKIP() << "this GPU has no blocks that could help";
  Sums sums;
  const QuantizedMatrix q = weights(kN, kK, fresh_seed(), GlobalScope::tensor);
  const Linear layer(q.view(), {.scheme = Scheme::w4a16, .device = kGpu, .workspace = sums.span()});
  const DenseX x(kM, kK, DType::bf16, 6);
  const Matrix on_gpu = to_device(x.part(0, kM, 0, kK), kGpu);
  poison_sums(sums);
  const Matrix out = layer.forward(on_gpu.view(), DType::bf16);
  synchronize(kGpu);
  expect_used(sums, p, tile, "layer");
  const PackedWeights packed = pack_weights(q.view(), {.device = kGpu});
  Matrix want(DType::bf16, kM, kN, kGpu);
  multiply(on_gpu.view(), packed, want.span(), {.workspace = sums.span()});
  synchronize(kGpu);
  EXPECT_TRUE(same_bits(to_device(out.view(), {}), to_device(want.view(), {})));
}

}  // namespace nvfp4::test::tensor_core_help_test
