#pragma once

#include <cstddef>
#include <cstdint>

#include "nvfp4/matrix.h"

/// The part of a GEMM that differs between CPU backends. host/gemm_loop.cc divides a GEMM into
/// tiles and calls these kernels from many threads.
namespace nvfp4 {

// Constants of WeightLayout::interleaved_16x4.
inline constexpr std::int64_t kPanelRows = 16, kGroupBlocks = 4;
inline constexpr std::int64_t kGroupBytes = kPanelRows * kGroupBlocks * 9;

/// The offsets of block b in a panel of `blocks` blocks.
struct PanelBlock {
  std::int64_t scales;  ///< 16 bytes, one for each row
  std::int64_t codes;   ///< 2 x 16 words, one for each row
};
constexpr PanelBlock panel_block(std::int64_t b, std::int64_t blocks) {
  const std::int64_t group = b / kGroupBlocks, i = b % kGroupBlocks;
  const std::int64_t left = blocks - group * kGroupBlocks;
  const std::int64_t in_group = left < kGroupBlocks ? left : kGroupBlocks;
  const std::int64_t base = group * kGroupBytes;
  return {base + i * kPanelRows, base + in_group * kPanelRows + i * kPanelRows * 8};
}

/// W [rows, K] of a GEMM, in panels.
struct PanelMatrix {
  const std::uint8_t* data = nullptr;
  std::int64_t rows = 0, blocks = 0;

  std::int64_t panels() const { return ceil_div(rows, kPanelRows); }
  std::int64_t panel_bytes() const { return kPanelRows * blocks * 9; }
};

/// `count` panels of weights, `bytes` apart.
struct Panels {
  const std::uint8_t* data;
  std::int64_t bytes, count, blocks;
};

/// x of one GEMM: elements, or codes and linear scales.
struct Activations {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;  ///< in elements

  const std::uint8_t *codes = nullptr, *scales = nullptr;
  std::int64_t code_stride = 0, scale_stride = 0;  ///< in bytes
  const float* global = nullptr;                   ///< null for elements
  bool global_per_row = false;

  std::int64_t rows = 0, blocks = 0;
  bool operator==(const Activations&) const = default;
};

/// The operations on the sums.
struct GemmOutput {
  MatrixSpan out;
  float alpha = 1.0f;
  const float* x_global = nullptr;
  bool x_global_per_row = false;
  const float* w_global = nullptr;
  bool w_global_per_row = false;
  const float* bias = nullptr;

  float factor(std::int64_t m, std::int64_t n) const {
    const float w = w_global[w_global_per_row ? n : 0];
    return alpha * (x_global == nullptr ? w : x_global[x_global_per_row ? m : 0] * w);
  }
};

/// A part of the output: rows [m0, m0 + rows), columns [n0, n0 + cols).
struct GemmPart {
  std::int64_t m0, rows, n0, cols;
};

/// The kernels of one arithmetic on one backend, in one or two variants. A null `direct.run` means
/// unsupported. A null `tile.run` means that only `direct` exists.
///
/// Rows of x are converted once to records, one for each row and block, [block][row] for up to
/// `strip_rows` rows. `sums` has a row of `stride` floats for each row of x; kernels add to it.
struct GemmKernels {
  struct Records {
    int strip_rows = 0;
    std::int64_t bytes = 0;  ///< bytes of a row and block
    void (*prepare)(const Activations& x, std::int64_t row, int rows, std::byte* records) = nullptr;
  };
  /// A kernel that reads packed bytes directly.
  struct Direct {
    Records records;
    std::int64_t most_rows = 0;  ///< largest M for which it is faster than `tile`, in strips
    bool differs = false;        ///< its sums differ from those of `tile`
    /// Multiplies whole panels by up to strip_rows rows.
    void (*run)(const Panels& w, const std::byte* records, int rows, float* sums,
                std::int64_t stride) = nullptr;
  };
  /// A kernel for many rows; weights are dequantized once for all of them.
  struct Tile {
    Records records;
    int panels = 0;                  ///< adjacent panels of weights
    std::int64_t decoded_bytes = 0;  ///< bytes of a panel and block
    /// Dequantizes `blocks` blocks of `panels` panels, `panel_bytes` apart, from the start of a
    /// group. `blocks_left` counts the panels' blocks from there on.
    void (*decode)(const std::uint8_t* panel, std::int64_t panel_bytes, std::int64_t blocks,
                   std::int64_t blocks_left, std::byte* decoded) = nullptr;
    void (*run)(const std::byte* decoded, std::int64_t blocks, const std::byte* records, int rows,
                float* sums, std::int64_t stride) = nullptr;
  };
  Direct direct{};
  Tile tile{};

  const Records& records(bool is_direct) const { return is_direct ? direct.records : tile.records; }
};

}  // namespace nvfp4
