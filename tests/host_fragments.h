#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/packed_storage.h"

/// fragments_64x64 made and read on the CPU: what a GPU packs is compared with this.
namespace nvfp4::test {

struct HostFragments {
  PackedShape shape;                ///< its device is a GPU: sizes are those of its layout
  std::vector<std::uint8_t> bytes;  ///< as PackedWeights::memory()

  explicit HostFragments(const PackedShape& s) : shape(s) {
    shape.device = Device::cuda();
    bytes.resize(static_cast<std::size_t>(shape.memory_bytes()));
  }
  std::int64_t row_tiles() const { return ceil_div(shape.rows, cuda::kTileRows); }
  std::int64_t col_tiles() const { return ceil_div(shape.cols, cuda::kTileCols); }
  std::int64_t globals() const { return shape.scope == GlobalScope::tensor ? 1 : shape.rows; }
  std::uint8_t* tile(std::int64_t group, std::int64_t row_tile, std::int64_t col_tile) {
    return bytes.data() + ((group * row_tiles() + row_tile) * col_tiles() + col_tile) *
                              std::int64_t{cuda::kTileBytes};
  }
  std::uint8_t* global(std::int64_t group) {
    return bytes.data() + shape.bytes() + group * globals() * 4;
  }
  /// The row of W that is packed as row n.
  std::int64_t row_of(std::int64_t n) const {
    if (!shape.gate_up) return n;
    return cuda::gate_up_row(n, shape.rows / 2, shape.gate_up->interleave);
  }
};

/// Rows [row0, row0 + 64), blocks [block0, block0 + 4) of a group; what lies outside is zero.
inline cuda::TileValues tile_values(const HostFragments& to, const QuantizedView& w,
                                    std::int64_t group, std::int64_t row0, std::int64_t block0) {
  cuda::TileValues values{};
  const QuantizedShape& s = w.shape;
  for (std::int64_t r = 0; r < std::min<std::int64_t>(64, to.shape.rows - row0); ++r) {
    const std::int64_t n = group * to.shape.rows + to.row_of(row0 + r);
    for (std::int64_t b = 0; b < std::min<std::int64_t>(4, s.blocks() - block0); ++b) {
      std::uint8_t* const codes = &values.codes[r][b * 8];
      for (std::int64_t i = 0; i < 8; ++i)
        codes[i] = s.axis == BlockAxis::rows ? w.codes[(n * s.blocks() + block0 + b) * 8 + i]
                                             : w.codes[((block0 + b) * 8 + i) * s.cols + n];
      values.scales[r][b] = w.scales[s.scale_offset(n, block0 + b)];
    }
  }
  return values;
}

inline HostFragments pack_on_host(const QuantizedView& w, std::int64_t groups = 1,
                                  std::optional<GateUp> gate_up = {}) {
  HostFragments to({.groups = groups,
                    .rows = w.shape.vectors() / groups,
                    .cols = w.shape.depth(),
                    .scope = w.shape.scope,
                    .gate_up = gate_up});
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < to.row_tiles(); ++r)
      for (std::int64_t c = 0; c < to.col_tiles(); ++c) {
        const cuda::TileValues values = tile_values(to, w, g, r * 64, c * 4);
        std::uint8_t* const tile = to.tile(g, r, c);
        for (int warp = 0; warp < cuda::kTileWarps; ++warp)
          for (int lane = 0; lane < cuda::kTileLanes; ++lane) {
            std::uint32_t words[4];
            cuda::pack_lane(values, warp, lane, words);
            std::memcpy(tile + cuda::words_at(warp, lane), words, sizeof words);
          }
        for (int n = 0; n < 64; ++n)
          for (int b = 0; b < 4; ++b)
            tile[cuda::scale_at(n, b)] = cuda::widen_scale(cuda::usable_scale(values.scales[n][b]));
      }
    const bool per_row = w.shape.scope == GlobalScope::vector;
    std::memcpy(to.global(g), w.global_scale + (per_row ? g * to.shape.rows : 0),
                static_cast<std::size_t>(to.globals()) * 4);
  }
  return to;
}

inline QuantizedMatrix unpack_on_host(HostFragments& from, std::int64_t group = 0) {
  QuantizedMatrix q({.rows = from.shape.rows, .cols = from.shape.cols, .scope = from.shape.scope});
  const std::int64_t blocks = q.shape().blocks();
  for (std::int64_t r = 0; r < from.row_tiles(); ++r)
    for (std::int64_t c = 0; c < from.col_tiles(); ++c) {
      const std::uint8_t* const tile = from.tile(group, r, c);
      cuda::TileValues values{};
      for (int warp = 0; warp < cuda::kTileWarps; ++warp)
        for (int lane = 0; lane < cuda::kTileLanes; ++lane) {
          std::uint32_t words[4];
          std::memcpy(words, tile + cuda::words_at(warp, lane), sizeof words);
          cuda::unpack_lane(words, warp, lane, values);
        }
      for (int n = 0; n < std::min<std::int64_t>(64, from.shape.rows - r * 64); ++n)
        for (int b = 0; b < std::min<std::int64_t>(4, blocks - c * 4); ++b) {
          const std::int64_t at = from.row_of(r * 64 + n) * blocks + c * 4 + b;
          std::memcpy(q.codes() + at * 8, &values.codes[n][b * 8], 8);
          q.scales()[at] = cuda::narrow_scale(tile[cuda::scale_at(n, b)]);
        }
    }
  std::memcpy(q.global_scale(), from.global(group), static_cast<std::size_t>(from.globals()) * 4);
  return q;
}

}  // namespace nvfp4::test
