// FP8 on the CPU, thread by thread: tiles of weights as E4M3, every scale under every code, and the
// GEMM by mma.sync.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backends/cuda/gemm/fp8/decode_tile.cuh"
#include "backends/cuda/gemm/fp8/mma_kernel.cuh"
#include "quantizers/fp8_rows.h"

namespace nvfp4::cuda::fp8 {
namespace {

struct Tile {
  std::uint8_t bytes[kTileBytes];
  float powers[kTileRows];
  std::uint8_t codes[kTileRows][kTileCols];  ///< decoded

  explicit Tile(const TileValues& v) {
    for (int warp = 0; warp < kTileWarps; ++warp)
      for (int lane = 0; lane < kTileLanes; ++lane) {
        std::uint32_t words[4];
        pack_lane(v, warp, lane, words);
        std::memcpy(bytes + words_at(warp, lane), words, sizeof words);
      }
    for (int r = 0; r < kTileRows; ++r) {
      std::uint8_t largest = 0;
      for (int b = 0; b < 4; ++b) {
        bytes[scale_at(r, b)] = widen_scale(usable_scale(v.scales[r][b]));
        largest = std::max(largest, usable_scale(v.scales[r][b]));
      }
      powers[r] = fp8_row_factor(6 * E4M3{largest}.to_float());
    }
  }
};

void decode(const void* of) {
  Tile& tile = *static_cast<Tile*>(const_cast<void*>(of));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  LaneChunk chunk;
  std::memcpy(&chunk.codes, tile.bytes + words_at(warp, lane), 16);
  std::memcpy(&chunk.scales, tile.bytes + kTileCodeBytes + warp * 64 + lane / 4 * 8, 8);
  const int row = warp * 16 + lane / 4;
  uint4 rows[2];
  decode_lane(chunk, {tile.powers[row], tile.powers[row + 8]}, lane, rows);
  for (int r = 0; r < 2; ++r)
    std::memcpy(&tile.codes[row + 8 * r][lane % 4 * 16], &rows[r], sizeof rows[r]);
}

void expect_nearest(const TileValues& v) {
  Tile tile(v);
  emulated::launch(1, kTileWarps * kTileLanes, false, decode, &tile);
  for (int r = 0; r < kTileRows; ++r)
    for (int c = 0; c < kTileCols; ++c) {
      const auto code = static_cast<std::uint8_t>(v.codes[r][c / 2] >> (c % 2 * 4) & 0xF);
      const float value =
          E2M1{code}.to_float() * E4M3{usable_scale(v.scales[r][c / 16])}.to_float();
      ASSERT_EQ(tile.codes[r][c], fp8_code(value, fp8_row_inverse(tile.powers[r])).bits)
          << "row " << r << " column " << c << " value " << value << " power " << tile.powers[r];
    }
}

TEST(EmulatedFp8Tiles, EveryScaleBesideEveryLargerOne) {
  TileValues v{};
  for (int r = 0; r < kTileRows; ++r)
    for (int c = 0; c < kTileCols / 2; ++c)
      v.codes[r][c] = static_cast<std::uint8_t>(c % 8 * 2 * 17 + 16 + (c & 8) / 8);
  // Every row has its own largest scale, so that factors differ within a warp.
  for (int scale = 0; scale <= E4M3::kMaxBits; ++scale)
    for (int first = 0; first <= E4M3::kMaxBits; first += kTileRows) {
      for (int r = 0; r < kTileRows; ++r)
        for (int b = 0; b < 4; ++b)
          v.scales[r][b] =
              static_cast<std::uint8_t>(b == r % 4 ? std::min(first + r, 0x7E) : scale);
      expect_nearest(v);
    }
}

TEST(EmulatedFp8Tiles, AnyTileIsNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    TileValues v{};
    for (auto& row : v.codes)
      for (std::uint8_t& c : row) c = static_cast<std::uint8_t>(random());
    for (auto& row : v.scales)
      for (std::uint8_t& s : row) s = static_cast<std::uint8_t>(random() % 8 ? random() : 0);
    expect_nearest(v);
  }
}

/// Sums are exact. The last rows and columns are part of a tile and of a stage; 2200 rows have two
/// bands of tiles.
TEST(EmulatedFp8Tiles, GemmHasTheSumsOfItsTiles) {
  const struct {
    int n, k, rows;
  } kCases[] = {{280, 336, 131}, {24, 16, 2200}, {16, 80, 3}};
  std::mt19937 random(1);
  for (const auto& c : kCases) {
    const auto codes = [&](int rows, std::vector<float>& values) {
      std::vector<std::uint8_t> all(static_cast<std::size_t>(rows * c.k));
      for (std::uint8_t& code : all) {
        values.push_back(static_cast<float>(static_cast<int>(random() % 9) - 4) / 4);
        code = E4M3::from_float(values.back()).bits;
      }
      return all;
    };
    const auto factors = [&](int rows) {
      std::vector<float> all(static_cast<std::size_t>(rows));
      for (float& f : all) f = std::ldexp(1.0f, static_cast<int>(random() % 5) - 2);
      return all;
    };
    std::vector<float> w_values, x_values, out(static_cast<std::size_t>(c.rows * c.n), NAN);
    const std::vector<std::uint8_t> w = codes(c.n, w_values), x = codes(c.rows, x_values);
    const std::vector<float> w_factors = factors(c.n), x_factors = factors(c.rows);
    KernelArguments p;
    p.weights = w.data();
    p.n = c.n;
    p.w_global = w_factors.data();
    p.x_global = x_factors.data();
    p.w_global_per_row = p.x_global_per_row = true;
    p.factor = 1 / kFragmentUnit;
    p.bias = w_factors.data();
    p.x = x.data();
    p.k = c.k;
    p.m_end = p.m_total = c.rows;
    p.out = out.data();
    p.out_type = DType::f32;
    p.out_stride = c.n;
    emulated::launch(
        static_cast<int>(mma_blocks({.n = c.n, .m = c.rows})), MmaConfig::kThreads, false,
        [](const void* of) {
          multiply_tile(*static_cast<const KernelArguments*>(of), emulated::shared_memory());
        },
        &p);
    for (int r = 0; r < c.rows; ++r)
      for (int i = 0; i < c.n; ++i) {
        float sum = 0;
        for (int k = 0; k < c.k; ++k)
          sum += x_values[static_cast<std::size_t>(r * c.k + k)] *
                 w_values[static_cast<std::size_t>(i * c.k + k)];
        const float factor = w_factors[static_cast<std::size_t>(i)];
        ASSERT_EQ(out[static_cast<std::size_t>(r * c.n + i)],
                  sum * factor * x_factors[static_cast<std::size_t>(r)] + factor)
            << c.n << " x " << c.k << " row " << r << " column " << i;
      }
  }
}

}  // namespace
}  // namespace nvfp4::cuda::fp8
