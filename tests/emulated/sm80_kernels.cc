// Every kernel of gemm/sm80 on the CPU, thread by thread: their indices, barriers and stages,
// without a GPU. x and weights are such that every sum is exact.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/cuda/gemm/sm80/mma_kernel.cuh"

namespace nvfp4::cuda::sm80 {
namespace {

constexpr float kCodes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

struct Problem {
  int n, k, rows;
  std::vector<int> ends = {};  ///< of groups
  int top_k = 0;               ///< routed: rows are of tokens and their choices
  int split_k = 1;
  bool backwards = false;  ///< the last block runs first
  bool exact = true;       ///< else sums are rounded, and not looked at
  int groups() const { return top_k > 0 ? 3 : ends.empty() ? 1 : static_cast<int>(ends.size()); }
};

struct Weights {
  int n_tiles, chunks;
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;  ///< [group][row][column]

  Weights(const Problem& p, std::mt19937& random)
      : n_tiles((p.n + 63) / 64), chunks((p.k + 63) / 64) {
    bytes.resize(static_cast<std::size_t>(p.groups() * n_tiles * chunks) * kTileBytes);
    values.resize(static_cast<std::size_t>(p.groups() * p.n * p.k));
    for (int tile = 0; tile < p.groups() * n_tiles * chunks; ++tile) {
      TileValues v{};
      const int chunk = tile % chunks, row_tile = tile / chunks % n_tiles;
      const int group = tile / chunks / n_tiles;
      for (int r = 0; r < 64 && row_tile * 64 + r < p.n; ++r)
        for (int c = 0; c < 64 && chunk * 64 + c < p.k; ++c) {
          // 0.5, 1 or 2.
          if (c % 16 == 0) v.scales[r][c / 16] = static_cast<std::uint8_t>((6 + random() % 3) << 3);
          const unsigned code = random() % 16;
          v.codes[r][c / 2] |= static_cast<std::uint8_t>(code << c % 2 * 4);
          const float scale = std::ldexp(1.0f, (v.scales[r][c / 16] >> 3) - 7);
          values[static_cast<std::size_t>((group * p.n + row_tile * 64 + r) * p.k + chunk * 64 +
                                          c)] = (code & 8 ? -1 : 1) * kCodes[code & 7] * scale;
        }
      std::uint8_t* to = bytes.data() + static_cast<std::size_t>(tile) * kTileBytes;
      for (int warp = 0; warp < kTileWarps; ++warp)
        for (int lane = 0; lane < kTileLanes; ++lane) {
          std::uint32_t words[4];
          pack_lane(v, warp, lane, words);
          std::memcpy(to + words_at(warp, lane), words, sizeof words);
        }
      for (int r = 0; r < 64; ++r)
        for (int b = 0; b < 4; ++b) to[scale_at(r, b)] = widen_scale(v.scales[r][b]);
    }
  }
};

template <DType kType>
std::uint16_t of_float(float v) {
  return kType == DType::bf16 ? BF16::from_float(v).bits : FP16::from_float(v).bits;
}

template <class Config>
void kernel_of(const void* p) {
  mma_gemm_kernel<Config>(*static_cast<const KernelArguments*>(p));
}

/// The input: rows of x, or gate and up in halves.
template <DType kType, int kIndex, bool kSwiglu>
std::vector<float> run(const Problem& problem) {
  using Config = MmaConfigAt<kType, kIndex, kSwiglu>;
  SCOPED_TRACE(testing::Message() << "m " << Config::kTileM << " n " << Config::kTileN << " k "
                                  << problem.k << " split " << problem.split_k << " rows "
                                  << problem.rows << " swiglu " << kSwiglu);
  std::mt19937 random(kIndex);
  const Weights w(problem, random);
  const int x_rows = problem.top_k > 0 ? problem.rows / problem.top_k : problem.rows;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(x_rows * problem.k));
  std::vector<float> x_values(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x_values[i] = static_cast<float>(static_cast<int>(random() % 9) - 4) / 4;
    if (!problem.exact) x_values[i] = std::ldexp(x_values[i] / 3, static_cast<int>(i % 23) - 11);
    x[i] = of_float<kType>(x_values[i]);
  }
  std::vector<float> w_global(static_cast<std::size_t>(problem.groups()), 0.5f), bias;
  for (int i = 0; i < problem.groups() * problem.n; ++i) bias.push_back(static_cast<float>(i % 7));
  const int columns = kSwiglu ? problem.n / 2 : problem.n;
  std::vector<float> out(static_cast<std::size_t>(problem.rows * columns), -1234.0f);
  std::vector<std::int32_t> ends(problem.ends.begin(), problem.ends.end()), ids;
  for (int i = 0; i < problem.rows; ++i) ids.push_back(i % 4);  // 3 names no group
  std::vector<std::uint32_t> counters(kMostSplitTiles);
  std::vector<float> sums(std::size_t{1} << 22, NAN);

  KernelArguments p;
  p.weights = w.bytes.data();
  p.group_bytes = static_cast<std::int64_t>(w.n_tiles) * w.chunks * kTileBytes;
  p.n_tiles = w.n_tiles;
  p.chunks = w.chunks;
  p.n = problem.n;
  p.w_global = w_global.data();
  p.bias = bias.data();
  p.x = x.data();
  p.x_stride = p.k = problem.k;
  p.groups = problem.groups();
  p.m_end = p.m_total = problem.rows;
  p.out = out.data();
  p.out_type = DType::f32;
  p.out_stride = columns;
  p.wide_stores = columns % 4 == 0;
  p.limit = 1e30f;
  p.split_k = problem.split_k;
  p.stream_k_flags = counters.data();
  p.stream_k_sums = sums.data();
  const int n_tiles = (problem.n + Config::kTileN - 1) / Config::kTileN;
  int blocks = n_tiles * ((problem.rows + Config::kTileM - 1) / Config::kTileM);
  if (!ends.empty()) {
    p.ends = ends.data();
    blocks = n_tiles * (problem.groups() + problem.rows / Config::kTileM);
  }
  if (Config::kRouted) {
    p.routing.ids = ids.data();
    p.routing.id_type = IndexType::i32;
    p.routing.rows = x_rows;
    p.routing.top_k = problem.top_k;
    p.routing.id_stride = problem.top_k;
    p.rows_of_token = problem.top_k;
    blocks = n_tiles * problem.rows;
  }
  emulated::launch(blocks * problem.split_k, Config::kThreads, problem.backwards, kernel_of<Config>,
                   &p);

  EXPECT_EQ(std::ranges::count(counters, 0u), std::ssize(counters));
  if (!problem.exact) return out;
  const auto sum_of = [&](int row, int group, int n) {
    const std::size_t of_x =
        static_cast<std::size_t>((Config::kRouted ? row / problem.top_k : row) * problem.k);
    const std::size_t of_w = static_cast<std::size_t>((group * problem.n + n) * problem.k);
    float sum = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(problem.k); ++k)
      sum += x_values[of_x + k] * w.values[of_w + k];
    return 0.5f * sum;
  };
  int wrong = 0;
  for (int row = 0; row < problem.rows; ++row) {
    int group = 0;
    while (!ends.empty() && group + 1 < problem.groups() &&
           row >= ends[static_cast<std::size_t>(group)])
      ++group;
    if (Config::kRouted) group = ids[static_cast<std::size_t>(row)];
    if (group == 3) continue;
    for (int c = 0; c < columns; ++c) {
      const auto biased = [&](int n, int packed) {
        return sum_of(row, group, packed) + bias[static_cast<std::size_t>(group * problem.n + n)];
      };
      float expected = 0;
      if (kSwiglu) {
        const int packed = c / 8 * 16 + c % 8;
        expected = swiglu_one(biased(c, packed), biased(c + columns, packed + 8), p.limit);
      } else {
        expected = biased(c, c);
      }
      const float got = out[static_cast<std::size_t>(row * columns + c)];
      if (got != expected && ++wrong <= 3)
        ADD_FAILURE() << "row " << row << " column " << c << ": " << got << ", not " << expected;
    }
  }
  EXPECT_EQ(wrong, 0);
  return out;
}

template <int kIndex>
void run_kernel() {
  constexpr Kernel kEntry = kKernels[kIndex];
  if constexpr (kEntry.mainloop == MainloopKind::routed) {
    run<DType::bf16, kIndex, false>({.n = 88, .k = 400, .rows = 10, .top_k = 2});
    run<DType::f16, kIndex, true>({.n = 96, .k = 64, .rows = 4, .top_k = 2});
  } else {
    for (int split = 1; split <= kEntry.split_k; split *= 2)
      if ((kEntry.split_k & split) != 0)
        run<DType::bf16, kIndex, false>({.n = kEntry.n + 24,
                                         .k = 64 * (split + 3) - 16,
                                         .rows = kEntry.m + 3,
                                         .split_k = split,
                                         .backwards = split == 4});
    run<DType::f16, kIndex, false>({.n = 40, .k = 64 * 20, .rows = kEntry.m > 32 ? 9 : kEntry.m});
    run<DType::bf16, kIndex, false>(
        {.n = 72, .k = 144, .rows = 12, .ends = {5, 5, 12}, .split_k = kEntry.split_k & 2 ? 2 : 1});
    if constexpr (kEntry.n >= 32)
      run<DType::bf16, kIndex, true>(
          {.n = 96, .k = 208, .rows = 5, .split_k = kEntry.split_k & 2 ? 2 : 1});
  }
}

/// The order of the split-K blocks does not matter.
TEST(EmulatedSm80, BlocksInAnyOrderGiveTheSameBits) {
  constexpr auto index_of = [](const KernelConfig& t) {
    return static_cast<int>(&sm80::kernel_of(t) - kKernels);
  };
  const auto expect = [](auto index) {
    Problem p{.n = 100, .k = 1040, .rows = 5, .split_k = 4, .exact = false};
    const std::vector<float> forwards = run<DType::bf16, index(), false>(p);
    p.backwards = true;
    const std::vector<float> backwards = run<DType::bf16, index(), false>(p);
    EXPECT_EQ(0, std::memcmp(forwards.data(), backwards.data(), forwards.size() * 4));
    p.split_k = 1;
    const std::vector<float> whole = run<DType::bf16, index(), false>(p);
    EXPECT_NE(0, std::memcmp(forwards.data(), whole.data(), forwards.size() * 4)) << "exact";
  };
  expect(std::integral_constant<int, index_of({.m = 8, .n = 64})>{});
  expect(std::integral_constant<int, index_of({.m = 64, .n = 256})>{});
}

class EmulatedSm80Kernels : public testing::TestWithParam<int> {};

TEST_P(EmulatedSm80Kernels, KernelHasTheSumsOfItsTile) {
  with_index<kKernels>(kKernels + GetParam(), [](auto index) { run_kernel<index()>(); });
}
INSTANTIATE_TEST_SUITE_P(Tiles, EmulatedSm80Kernels,
                         testing::Range(0, static_cast<int>(std::size(kKernels))),
                         [](const auto& test) {
                           const Kernel& e = kKernels[test.param];
                           return "m" + std::to_string(e.m) + "n" + std::to_string(e.n);
                         });

}  // namespace
}  // namespace nvfp4::cuda::sm80
