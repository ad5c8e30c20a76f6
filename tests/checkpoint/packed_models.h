#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/tiny_model.h"
#include "nvfp4/format.h"

/// Weights as FP8 and MXFP4 checkpoints store them, and what they stand for.
namespace nvfp4 {

inline std::vector<std::byte> random_bytes(std::int64_t n, const std::string& seed, int low,
                                           int high) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(seed)));
  std::uniform_int_distribution<int> value(low, high);
  std::vector<std::byte> bytes(static_cast<std::size_t>(n));
  for (std::byte& b : bytes) b = static_cast<std::byte>(value(random));
  return bytes;
}

struct PackedWeight {
  std::vector<TestTensor> tensors;
  std::vector<float> values;  ///< row-major
};

/// E4M3 with one FP32 scale for each block_rows x block_cols, in a tensor of `scale_shape`.
inline PackedWeight fp8_weight(const std::string& name, std::int64_t rows, std::int64_t cols,
                               const std::string& scale_name, std::vector<std::int64_t> scale_shape,
                               std::int64_t block_rows, std::int64_t block_cols) {
  PackedWeight w;
  std::vector<std::byte> codes = random_bytes(rows * cols, name, 0, 255);
  for (std::byte& c : codes)
    if ((c & std::byte{0x7F}) == std::byte{0x7F}) c ^= std::byte{1};  // NaN
  std::vector<float> scales = random_values(element_count(scale_shape), name + "s", 0.01f);
  for (float& s : scales) s = std::fabs(s) / 448 + 1e-6f;
  const std::int64_t scale_cols = (cols + block_cols - 1) / block_cols;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      w.values.push_back(
          E4M3{std::to_integer<std::uint8_t>(codes[static_cast<std::size_t>(r * cols + c)])}
              .to_float() *
          scales[static_cast<std::size_t>(r / block_rows * scale_cols + c / block_cols)]);
  w.tensors.push_back({{name + ".weight", safetensors::DType::f8_e4m3, {rows, cols}}, codes});
  w.tensors.push_back({{name + scale_name, safetensors::DType::f32, std::move(scale_shape)},
                       encode(scales, safetensors::DType::f32)});
  return w;
}

inline PackedWeight fp8_blocks(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return fp8_weight(name, rows, cols, ".weight_scale_inv", {(rows + 127) / 128, (cols + 127) / 128},
                    128, 128);
}

/// Random codes, exponents in [low, high] of E8M0.
inline PackedWeight mxfp4_weight(const std::string& codes_name, const std::string& scales_name,
                                 std::vector<std::int64_t> code_shape,
                                 std::vector<std::int64_t> scale_shape, int low, int high) {
  using enum safetensors::DType;
  PackedWeight w;
  const auto codes = random_bytes(element_count(code_shape), codes_name, 0, 255);
  const auto exponents = random_bytes(element_count(scale_shape), scales_name, low, high);
  for (std::size_t i = 0; i < codes.size() * 2; ++i) {
    const auto pair = std::to_integer<unsigned>(codes[i / 2]);
    const E2M1 code{static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4)};
    w.values.push_back(std::ldexp(code.to_float(), std::to_integer<int>(exponents[i / 32]) - 127));
  }
  w.tensors.push_back({{codes_name, u8, std::move(code_shape)}, codes});
  w.tensors.push_back({{scales_name, u8, std::move(scale_shape)}, exponents});
  return w;
}

/// Returns a matrix in the layout of DeepSeek-V4.
inline PackedWeight mxfp4_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 int low, int high) {
  PackedWeight w = mxfp4_weight(name + ".weight", name + ".scale", {rows, cols / 2},
                                {rows, cols / 32}, low, high);
  w.tensors[0].spec.dtype = safetensors::DType::i8;
  w.tensors[1].spec.dtype = safetensors::DType::f8_e8m0;
  return w;
}

inline void append(std::vector<TestTensor>& to, const PackedWeight& weight) {
  to.insert(to.end(), weight.tensors.begin(), weight.tensors.end());
}

}  // namespace nvfp4
