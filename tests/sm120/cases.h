#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/gemm/arguments.h"
#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/cuda/gemm/sm120/kernels.h"
#include "backends/cuda/gemm/sm120/quantized_x.h"
#include "sm120/chain.h"

/// Products of the kernels of gemm/sm120 against chain_add(), bit for bit, wherever they run: a
/// `Machine` has memory (put, get) and runs a kernel (run<Config>).
namespace nvfp4::test {

enum class Scales { near_one, any, extreme, with_nan };
enum class Pattern { random, x_one_hot, w_one_hot };

struct OmmaCase {
  int n, k, rows;
  std::vector<int> ends = {};  ///< of groups
  int groups = 1;              ///< without ends: each has all rows
  bool x_of_group = false;     ///< and columns of its own
  int top_k = 0;               ///< routed: rows are of tokens and their choices, of any of groups
  int split_k = 1;
  bool backwards = false;  ///< the last block runs first, where that can be asked for
  ScaleLayout layout = ScaleLayout::linear;
  Scales scales = Scales::any;
  Pattern pattern = Pattern::random;
  DType out = DType::f32;
  int group_count() const { return ends.empty() ? groups : static_cast<int>(ends.size()); }
  int x_rows() const { return top_k > 0 ? rows / top_k : rows; }
  int x_cols() const { return x_of_group ? groups * k : k; }
};

inline std::uint8_t random_scale(Scales kind, std::mt19937& random, bool of_x) {
  const unsigned sign = of_x && random() % 8 == 0 ? 0x80 : 0;  // ignored
  switch (kind) {
    case Scales::near_one:
      return static_cast<std::uint8_t>(0x38 + random() % 8);
    case Scales::any:
      return static_cast<std::uint8_t>(sign | random() % 0x7F);
    case Scales::extreme:
      return static_cast<std::uint8_t>(sign |
                                       (random() % 2 != 0 ? random() % 9 : 0x76 + random() % 9));
    case Scales::with_nan:
      break;
  }
  return static_cast<std::uint8_t>(of_x && random() % 60 == 0 ? sign | 0x7F : random() % 0x7F);
}

/// Rows of codes and scales, a chunk after the other.
struct ChunkRows {
  int chunks;
  std::vector<ChainChunk> of;
  ChunkRows(int rows, int k) : chunks(k / 64), of(static_cast<std::size_t>(rows * chunks)) {}
  ChainChunk& at(int row, int chunk) { return of[static_cast<std::size_t>(row * chunks + chunk)]; }
  const ChainChunk& at(int row, int chunk) const {
    return of[static_cast<std::size_t>(row * chunks + chunk)];
  }
};

inline ChunkRows random_rows(int rows, int k, Scales kind, bool of_x, bool one_hot,
                             std::mt19937& random) {
  ChunkRows r(rows, k);
  for (int row = 0; row < rows; ++row)
    for (int chunk = 0; chunk < r.chunks; ++chunk) {
      ChainChunk& c = r.at(row, chunk);
      for (int i = 0; i < 64; ++i)
        c.codes[i] = one_hot ? (chunk * 64 + i == row % k ? 2 : 0)
                             : static_cast<std::uint8_t>(random() % 16);
      for (std::uint8_t& scale : c.scales) scale = random_scale(kind, random, of_x);
    }
  return r;
}

/// Returns W in the layout of PackedWeights.
inline std::vector<std::uint8_t> packed(const ChunkRows& w, int groups, int n) {
  const int n_tiles = (n + 63) / 64;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(groups * n_tiles * w.chunks) *
                                  cuda::kTileBytes);
  for (int tile = 0; tile < groups * n_tiles * w.chunks; ++tile) {
    cuda::TileValues v{};
    const int chunk = tile % w.chunks, row0 = tile / w.chunks % n_tiles * 64;
    const int group = tile / w.chunks / n_tiles;
    for (int r = 0; r < 64 && row0 + r < n; ++r) {
      const ChainChunk& c = w.at(group * n + row0 + r, chunk);
      for (int i = 0; i < 64; ++i)
        v.codes[r][i / 2] |= static_cast<std::uint8_t>(c.codes[i] << i % 2 * 4);
      std::memcpy(v.scales[r], c.scales, 4);
    }
    std::uint8_t* const to = bytes.data() + static_cast<std::size_t>(tile) * cuda::kTileBytes;
    for (int warp = 0; warp < cuda::kTileWarps; ++warp)
      for (int lane = 0; lane < cuda::kTileLanes; ++lane) {
        std::uint32_t words[4];
        cuda::pack_lane(v, warp, lane, words);
        std::memcpy(to + cuda::words_at(warp, lane), words, sizeof words);
      }
    for (int r = 0; r < 64; ++r)
      for (int b = 0; b < 4; ++b) to[cuda::scale_at(r, b)] = cuda::widen_scale(v.scales[r][b]);
  }
  return bytes;
}

/// The sum of a row of x and one of W, in the order of a kernel: parts of K of a block in turn,
/// then those of blocks.
template <class Config>
float chain_sum(const ChunkRows& x, int x_row, int first_chunk, const ChunkRows& w, int w_row,
                int split_k) {
  const int parts = Config::kParts, step = parts * split_k;
  float total = 0;
  for (int block = 0; block < split_k; ++block) {
    float of_block = 0;
    for (int part = 0; part < parts; ++part) {
      float sum = 0;
      for (int c = block * parts + part; c < w.chunks; c += step)
        sum = chain_add(sum, w.at(w_row, c), x.at(x_row, first_chunk + c));
      of_block = part == 0 ? sum : of_block + sum;
    }
    total = block == 0 ? of_block : total + of_block;
  }
  return total;
}

/// Operands on the host, and what a product of them is.
struct OmmaOperands {
  OmmaCase c;
  std::mt19937 random;
  int groups;
  ChunkRows x, w;
  std::vector<std::uint8_t> weights, codes, scales;
  std::vector<float> w_global, bias, x_global, alpha;
  std::vector<std::int32_t> ends, ids;
  static constexpr float kAlpha = 0.75f;

  explicit OmmaOperands(const OmmaCase& of)
      : c(of),
        random(static_cast<unsigned>(c.n * 131 + c.k * 7 + c.rows)),
        groups(c.group_count()),
        x(random_rows(c.x_rows(), c.x_cols(), c.scales, true, c.pattern == Pattern::x_one_hot,
                      random)),
        w(random_rows(groups * c.n, c.k, c.scales, false, c.pattern == Pattern::w_one_hot, random)),
        weights(packed(w, groups, c.n)),
        codes(static_cast<std::size_t>(c.x_rows() * c.x_cols() / 2)),
        scales(static_cast<std::size_t>(scale_bytes(c.layout, c.x_rows(), blocks()))),
        ends(c.ends.begin(), c.ends.end()) {
    for (int row = 0; row < c.x_rows(); ++row)
      for (int k = 0; k < c.x_cols(); ++k) {
        const ChainChunk& from = x.at(row, k / 64);
        codes[static_cast<std::size_t>((row * c.x_cols() + k) / 2)] |=
            static_cast<std::uint8_t>(from.codes[k % 64] << k % 2 * 4);
        scales[static_cast<std::size_t>(
            scale_offset(c.layout, row, k / 16, c.x_rows(), blocks()))] = from.scales[k % 64 / 16];
      }
    for (int i = 0; i < groups; ++i) {
      w_global.push_back(0.5f + static_cast<float>(i) / 3);
      alpha.push_back(1.0f + static_cast<float>(i) / 7);
    }
    for (int i = 0; i < groups * c.n; ++i) bias.push_back(static_cast<float>(i % 7) / 3);
    for (int i = 0; i < c.x_rows(); ++i) x_global.push_back(1.0f / static_cast<float>(1 + i % 5));
    for (int i = 0; i < c.rows; ++i) ids.push_back(i % (groups + 1));  // the last names no group
  }
  int blocks() const { return c.x_cols() / 16; }
  int group_of(int row, int column) const {
    if (c.top_k > 0) return ids[static_cast<std::size_t>(row)];
    if (ends.empty()) return column / c.n;
    int group = 0;
    while (group + 1 < groups && row >= ends[static_cast<std::size_t>(group)]) ++group;
    return group;
  }
  /// Returns row `n` of W for row `of_w` of a group's packed W.
  template <class Config>
  float finished(int row, int group, int of_w, int n) const {
    const auto g = static_cast<std::size_t>(group);
    const int x_row = c.top_k > 0 ? row / c.top_k : row;
    const float factor =
        kAlpha * alpha[g] * w_global[g] * x_global[static_cast<std::size_t>(x_row)];
    return std::fma(chain_sum<Config>(x, x_row, c.x_of_group ? group * w.chunks : 0, w,
                                      group * c.n + of_w, c.split_k),
                    factor, bias[static_cast<std::size_t>(group * c.n + n)]);
  }
};

/// Returns the arguments of a kernel without the output.
template <class Machine>
cuda::KernelArguments arguments_of(const OmmaOperands& o, Machine& machine) {
  const OmmaCase& c = o.c;
  cuda::KernelArguments p;
  p.weights = machine.put(o.weights);
  p.n_tiles = (c.n + 63) / 64;
  p.chunks = c.k / 64;
  p.group_bytes = static_cast<std::int64_t>(p.n_tiles) * p.chunks * cuda::kTileBytes;
  p.n = c.n;
  p.k = c.k;
  p.w_global = machine.put(o.w_global);
  p.x_global = machine.put(o.x_global);
  p.x_global_per_row = true;
  p.alpha = machine.put(o.alpha);
  p.bias = machine.put(o.bias);
  p.factor = OmmaOperands::kAlpha / 256;  // see kFragmentUnit
  p.groups = o.groups;
  p.x_of_group = c.x_of_group;
  p.out_group_cols = o.ends.empty() && c.top_k == 0 ? c.n : 0;
  p.m_end = p.m_total = c.rows;
  if (c.top_k > 0) {
    p.routing.ids = machine.put(o.ids);
    p.routing.id_type = IndexType::i32;
    p.routing.id_stride = p.routing.top_k = c.top_k;
    p.routing.rows = c.x_rows();
    p.rows_of_token = c.top_k;
  }
  p.out_type = c.out;
  p.limit = 1e30f;
  p.split_k = c.split_k;
  if (!o.ends.empty()) p.ends = machine.put(o.ends);
  return p;
}

/// Runs a kernel: out, with a row more that nobody may touch. `change`: of its arguments.
template <class Config, class Machine, class Change = void (*)(cuda::KernelArguments&)>
std::vector<std::uint8_t> output_of(
    const OmmaOperands& o, int columns, Machine& machine,
    const Change& change = [](cuda::KernelArguments&) {}) {
  const OmmaCase& c = o.c;
  const std::size_t size = c.out == DType::f32 ? 4 : 2;
  std::vector<std::uint8_t> out(static_cast<std::size_t>((c.rows + 1) * columns) * size, 0xAA);
  std::vector<std::uint32_t> counters(cuda::sm80::kMostSplitTiles);
  const int n_tiles = (c.n + Config::kTileN - 1) / Config::kTileN;
  const int blocks =
      n_tiles * (c.top_k > 0      ? c.rows
                 : o.ends.empty() ? o.groups * ((c.rows + Config::kTileM - 1) / Config::kTileM)
                                  : o.groups + c.rows / Config::kTileM);
  const std::size_t partials =
      static_cast<std::size_t>(blocks * c.split_k) * Config::kTileM * Config::kTileN;
  std::vector<float> sums(c.split_k == 1 ? 1 : partials, NAN);
  const cuda::sm120::QuantizedX x{
      .codes = machine.put(o.codes),
      .scales = machine.put(o.scales),
      .row_bytes = c.x_cols() / 2,
      .scale_step = scale_offset(c.layout, 0, 4, c.x_rows(), o.blocks()),
      .layout = c.layout,
      .rows = c.x_rows(),
      .blocks = o.blocks()};
  cuda::KernelArguments p = arguments_of(o, machine);
  std::uint8_t* const to = machine.put(out);
  p.out = to;
  p.out_stride = columns;
  p.wide_stores = columns % (16 / static_cast<int>(size)) == 0 && c.n % 8 == 0;
  p.stream_k_flags = machine.put(counters);
  p.stream_k_sums = machine.put(sums);
  change(p);
  machine.template run<Config>(x, p, blocks * c.split_k, c.backwards);
  machine.get(out, to);
  machine.get(counters, p.stream_k_flags);
  EXPECT_EQ(std::ranges::count(counters, 0u), std::ssize(counters));
  return out;
}

/// Reports whether a value has the right bits. With SwiGLU, whose exponential differs, it must be
/// close.
template <class Config>
bool is_right(const OmmaOperands& o, int row, int column, std::uint32_t got) {
  const OmmaCase& c = o.c;
  const float value = c.out == DType::f32 ? std::bit_cast<float>(got)
                                          : BF16{static_cast<std::uint16_t>(got)}.to_float();
  const int group = o.group_of(row, column);
  if (group == o.groups) return got == (c.out == DType::f32 ? 0xAAAAAAAAu : 0xAAAAu);
  if constexpr (Config::kSwiglu) {
    const int of = column / 8 * 16 + column % 8;
    const double gate = o.finished<Config>(row, group, of, column),
                 up = o.finished<Config>(row, group, of + 8, column + c.n / 2);
    const double expected = gate / (1 + std::exp(-gate)) * up;
    const double bound = c.out == DType::f32 ? 1e-5 : 5e-3;
    return std::abs(value - expected) <= bound * std::abs(expected) + 1e-6;
  }
  const int n = column % c.n;
  const float expected = o.finished<Config>(row, group, n, n);
  if (std::isnan(expected)) return std::isnan(value);
  return got == (c.out == DType::f32 ? std::bit_cast<std::uint32_t>(expected)
                                     : BF16::from_float(expected).bits);
}

template <class Config, class Machine>
void expect_chain(const OmmaOperands& operands, Machine&& machine) {
  const OmmaCase& c = operands.c;
  SCOPED_TRACE(testing::Message() << "tile m " << Config::kTileM << " n " << Config::kTileN
                                  << ", n " << c.n << " k " << c.k << " rows " << c.rows
                                  << " split " << c.split_k << " groups " << c.group_count()
                                  << " layout " << layout_name(c.layout) << " swiglu "
                                  << Config::kSwiglu);
  const int columns =
      (Config::kSwiglu ? c.n / 2 : c.n) * (c.ends.empty() && c.top_k == 0 ? operands.groups : 1);
  const std::vector<std::uint8_t> out = output_of<Config>(operands, columns, machine);
  const std::size_t size = c.out == DType::f32 ? 4 : 2;
  int wrong = 0;
  for (int row = 0; row <= c.rows; ++row)
    for (int column = 0; column < columns; ++column) {
      std::uint32_t got = 0;
      std::memcpy(&got, out.data() + static_cast<std::size_t>(row * columns + column) * size, size);
      const bool right = row == c.rows ? got == (size == 4 ? 0xAAAAAAAAu : 0xAAAAu)
                                       : is_right<Config>(operands, row, column, got);
      if (!right && ++wrong <= 3)
        ADD_FAILURE() << "row " << row << " column " << column << " has the bits " << std::hex
                      << got;
    }
  EXPECT_EQ(wrong, 0);
}

template <class Config, class Machine>
void expect_chain(const OmmaCase& c, Machine&& machine) {
  expect_chain<Config>(OmmaOperands(c), machine);
}

}  // namespace nvfp4::test
