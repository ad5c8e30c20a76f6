#include "backends/cuda/runtime.h"
#include "nvfp4/layers.h"
#include "tensor_core_cases.h"

/// Products whose blocks leave a part of their depth to others.
namespace nvfp4::test {
namespace {

cuda::KernelProblem problem_of(std::int64_t n, std::int64_t k, std::int64_t rows) {
  return {
      .n = n, .k = k, .m = rows, .multiprocessors = cuda::multiprocessors(kGpu), .stream_k = true};
}

/// NaN in all sums.
void poison_sums(PartialSums& sums) {
  ASSERT_EQ(cudaMemset(static_cast<char*>(sums.data()) + cuda::kStreamKFlagBytes, 0xFF,
                       cuda::kStreamKSumBytes),
            cudaSuccess);
}

/// Every block's slice, and nothing else, was handed on; the flags are ready for the next product.
void expect_used(PartialSums& sums, const cuda::KernelProblem& p, const GemmTile& t,
                 const std::string& what) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(PartialSums::bytes() / 4), 1);
  ASSERT_EQ(cudaMemcpy(words.data(), sums.data(), words.size() * 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
  const auto flags_end = words.begin() + cuda::kStreamKFlagBytes / 4;
  const auto used_end =
      flags_end + cuda::block_count(p, config_of(t)) * cuda::stream_k_sum_bytes(config_of(t)) / 4;
  const auto is_poison = [](std::uint32_t w) { return w == 0xFFFFFFFF; };
  EXPECT_TRUE(std::all_of(words.begin(), flags_end, [](std::uint32_t f) { return f == 0; }))
      << what;
  EXPECT_TRUE(std::none_of(flags_end, used_end, is_poison)) << what;
  EXPECT_TRUE(std::all_of(used_end, words.end(), is_poison)) << what;
}

std::vector<GemmTile> helped_tiles(const Weights& w, std::int64_t rows) {
  std::vector<GemmTile> tiles;
  const cuda::KernelProblem p = problem_of(w.n, w.k, rows);
  for (const int tokens : {16, 32, 64})
    for (const int splits : {1, 2, 4})
      for (const int help : {1, 2, 3, 6, 7})
        if (const GemmTile t{.tokens = tokens, .rows = 64, .splits = splits, .help = help};
            cuda::can_stream_k(p, config_of(t)))
          tiles.push_back(t);
  return tiles;
}

TEST_F(CudaGemm, HelpersAddTheirParts) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  PartialSums sums(kGpu);
  int count = 0;
  // From one block to as many as there are helpers and more.
  for (const Shape& s : {Shape{8, 2048}, Shape{200, 4096}, Shape{1000, 1024}, Shape{4296, 2048}})
    for (const std::int64_t m : {9, 33, 64, 70}) {
      const Weights w(1, s.n, s.k, GlobalScope::vector, seed);
      const DenseX x(m, s.k, m % 2 == 0 ? DType::bf16 : DType::f16, seed);
      for (GemmTile t : helped_tiles(w, m)) {
        t.next = t.tokens < 64 ? count % 5 : 0;
        t.early = ++count % 4;
        const std::string what = name_of(s, m, seed) + " " + name_of(t);
        poison_sums(sums);
        expect_product(x, w, count % 3 ? DType::bf16 : DType::f32,
                       {.tile = t, .partial_sums = &sums}, 8 * (count % 2) + count % 3, what);
        expect_used(sums, problem_of(s.n, s.k, m), t, what);
      }
    }
  EXPECT_GT(count, 100);
}

TEST_F(CudaGemm, HelpersAddPartsOfQuantizedRows) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  PartialSums sums(kGpu);
  const Weights w(1, 4296, 2048, GlobalScope::tensor, seed);
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
    for (const GemmTile& t : helped_tiles(w, 50))
      expect_product(QuantizedX(50, 2048, scope, seed), w, DType::bf16,
                     {.tile = t, .partial_sums = &sums}, 8, name_of(t));
}

/// One product after the other has the same memory for its sums, and reads what the last wrote.
TEST_F(CudaGemm, HelpersOfOneProductAfterTheOther) {
  constexpr std::int64_t kRowsOfX = 16, kSize = 3072;
  constexpr int kProducts = 4;
  const std::uint64_t seed = 10 * fresh_seed();
  PartialSums sums(kGpu);
  std::vector<Weights> weights;
  for (int i = 0; i < kProducts; ++i)
    weights.emplace_back(1, kSize, kSize, GlobalScope::tensor,
                         seed + static_cast<std::uint64_t>(i));
  const Matrix poison = poisoned(DType::bf16, kRowsOfX, kSize, kSize, kGpu).memory;
  std::vector<Matrix> x;
  for (int i = 0; i <= kProducts; ++i) x.emplace_back(DType::bf16, kRowsOfX, kSize, kGpu);
  const DenseX first(kRowsOfX, kSize, DType::bf16, seed);
  copy(first.part(0, kRowsOfX, 0, kSize), x[0].span());
  const auto last_of = [&](const GemmTile& t, bool one_by_one) {
    for (int i = 1; i <= kProducts; ++i) copy(poison.view(), x[static_cast<std::size_t>(i)].span());
    for (std::size_t i = 0; i < kProducts; ++i) {
      gemm_into(x[i].view(), weights[i].packed, x[i + 1].span(),
                {.alpha = 0.02f, .tile = t, .partial_sums = &sums});
      if (one_by_one) synchronize(kGpu);
    }
    return to_device(x[kProducts].view(), {});
  };
  for (GemmTile t : {GemmTile{16, 64, 2}, GemmTile{32, 64, 1}, GemmTile{32, 64, 2},
                     GemmTile{64, 64, 1}, GemmTile{64, 64, 2}})
    for (const int help : {1, 2, 5})
      for (const int early : {0, 1, 3}) {
        t.help = help;
        t.early = early;
        if (t.tokens < 64) t.next = help + early;
        const cuda::KernelProblem problem = problem_of(kSize, kSize, kRowsOfX);
        if (!cuda::can_stream_k(problem, config_of(t))) continue;
        poison_sums(sums);
        const Matrix want = last_of(t, true);
        for (std::int64_t i = 0; i < kRowsOfX * kSize; ++i)
          ASSERT_TRUE(std::isfinite(BF16{want.data<std::uint16_t>()[i]}.to_float())) << name_of(t);
        for (int repeat = 0; repeat < 10; ++repeat)
          EXPECT_TRUE(same_bits(last_of(t, false), want)) << name_of(t);
        expect_used(sums, problem, t, name_of(t));
      }
}

TEST_F(CudaGemm, RefusesHelpWhereThereIsNone) {
  PartialSums sums(kGpu);
  const Weights w(1, 640, 2048, GlobalScope::tensor, 2), odd(1, 640, 2064, GlobalScope::tensor, 2);
  Matrix x(DType::bf16, 40, 2064, kGpu), out(DType::bf16, 40, 640, kGpu);
  const auto product = [&](const Weights& weights, const GemmTile& t, PartialSums* given,
                           bool batch_invariant = false) {
    MatrixView view = x.view();
    view.cols = weights.k;
    gemm_into(view, weights.packed, out.span(),
              {.batch_invariant = batch_invariant, .tile = t, .partial_sums = given});
  };
  GemmTile t{.tokens = 64, .rows = 64, .splits = 1, .help = 2};
  EXPECT_NO_THROW(product(w, t, &sums));
  EXPECT_THROW(product(w, t, nullptr), ValueError);
  EXPECT_THROW(product(w, t, &sums, true), ValueError);
  EXPECT_THROW(product(odd, t, &sums), ValueError);  // the last step is not whole
  t.help = 8;                                        // of 8
  EXPECT_THROW(product(w, t, &sums), ValueError);
  t.help = -1;
  EXPECT_THROW(product(w, t, &sums), ValueError);
  EXPECT_THROW(product(w, {.tokens = 64, .rows = 128, .splits = 1, .help = 2}, &sums), ValueError);
  EXPECT_THROW(product(w, {.tokens = 8, .rows = 64, .splits = 2, .help = 2}, &sums), ValueError);
  EXPECT_THROW(product(w, {.tokens = 16, .rows = 64, .splits = 1, .help = 2}, &sums), ValueError);
  PartialSums moved = std::move(sums);
  EXPECT_THROW(product(w, {}, &sums), ValueError);
  EXPECT_NO_THROW(product(w, {}, &moved));
  // All blocks that a GPU takes at once have tiles.
  const std::int64_t n = 64 * cuda::multiprocessors(kGpu);
  const Weights many(1, n, 2048, GlobalScope::tensor, 2);
  Matrix wide(DType::bf16, 40, n, kGpu);
  MatrixView view = x.view();
  view.cols = many.k;
  EXPECT_THROW(gemm_into(view, many.packed, wide.span(),
                         {.tile = {.tokens = 64, .rows = 64, .splits = 1, .help = 2},
                          .partial_sums = &moved}),
               ValueError);
  const Weights groups(2, 320, 2048, GlobalScope::tensor, 2);
  EXPECT_THROW(gemm_every_group_into(view, groups.packed, out.span(),
                                     {.tile = {.tokens = 64, .rows = 64, .splits = 1, .help = 2},
                                      .partial_sums = &moved}),
               ValueError);
  synchronize(kGpu);
}

/// A layer hands its PartialSums to the product.
TEST_F(CudaGemm, HelpersWorkForALayer) {
  constexpr std::int64_t kN = 5120, kK = 8192, kM = 64;
  const cuda::KernelProblem p = problem_of(kN, kK, kM);
  const GemmTile tile = tile_of(cuda::choose_kernel(p));
  if (tile.help == 0) GTEST_SKIP() << "this GPU has no blocks that could help";
  PartialSums sums(kGpu);
  const QuantizedMatrix q = weights(kN, kK, fresh_seed(), GlobalScope::tensor);
  const Linear layer(q.view(), {.scheme = Scheme::nvfp4a16, .device = kGpu, .partial_sums = &sums});
  const DenseX x(kM, kK, DType::bf16, 6);
  const Matrix on_gpu = to_device(x.part(0, kM, 0, kK), kGpu);
  poison_sums(sums);
  const Matrix out = layer.forward(on_gpu.view(), DType::bf16);
  synchronize(kGpu);
  expect_used(sums, p, tile, "layer");
  const FragmentWeights packed = pack_fragments(to_device(q.view(), kGpu).view());
  Matrix want(DType::bf16, kM, kN, kGpu);
  gemm_into(on_gpu.view(), packed, want.span(), {.partial_sums = &sums});
  synchronize(kGpu);
  EXPECT_TRUE(same_bits(to_device(out.view(), {}), to_device(want.view(), {})));
}

}  // namespace
}  // namespace nvfp4::test

namespace nvfp4 {
namespace {

TEST(PartialSums, AreForAGpu) { EXPECT_THROW(PartialSums(Device{}), UnsupportedError); }

}  // namespace
}  // namespace nvfp4
