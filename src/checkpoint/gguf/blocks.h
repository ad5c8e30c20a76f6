#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "nvfp4/format.h"

/// Packing of ggml's block_nvfp4, 64 elements of a row in 36 bytes, and of its other blocks.
/// Source: github.com/ggml-org/ggml, src/ggml-common.h; gguf-py, quants.py.
namespace nvfp4::gguf {

inline constexpr std::int64_t kBlockElements = 64;
inline constexpr std::size_t kBlockBytes = 36, kBlockScales = 4, kBlockCodes = 32;
/// The elements and the bytes of a block of Q8_0: an FP16 scale and 32 integers.
inline constexpr std::int64_t kQ8Block = 32, kQ8BlockBytes = 34;
/// The elements and the bytes of a block of MXFP4: an E8M0 exponent and 16 bytes of codes.
inline constexpr std::int64_t kMxBlock = 32, kMxBlockBytes = 17;
/// The largest scale. llama.cpp reads 0x7F as 0, and scales have no sign.
inline constexpr std::byte kLargestScale{0x7E};

/// Reports whether llama.cpp reads a scale byte as E4M3 does.
inline bool is_scale(std::byte bits) { return bits <= kLargestScale; }

/// Packs `2 * pairs` bytes of row-major codes, with the even element in the low nibble. In the file
/// the low nibbles are the first half of the elements.
inline void pack_nibbles(const std::byte* in, std::size_t pairs, std::byte* out) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::byte first = in[i], second = in[i + pairs];
    out[2 * i] = (first & std::byte{0x0F}) | second << 4;
    out[2 * i + 1] = first >> 4 | (second & std::byte{0xF0});
  }
}

inline void unpack_nibbles(const std::byte* in, std::size_t pairs, std::byte* out) {
  for (std::size_t i = 0; i < pairs; ++i) {
    out[i] = (in[2 * i] & std::byte{0x0F}) | in[2 * i + 1] << 4;
    out[i + pairs] = in[2 * i] >> 4 | (in[2 * i + 1] & std::byte{0xF0});
  }
}

/// Packs row-major codes and their E4M3 scales into blocks. A sub-block has eight bytes of codes.
inline void pack_blocks(std::span<const std::byte> codes, std::span<const std::byte> scales,
                        std::span<std::byte> blocks) {
  for (std::size_t b = 0; b < blocks.size() / kBlockBytes; ++b) {
    std::byte* out = blocks.data() + b * kBlockBytes;
    std::copy_n(scales.data() + b * kBlockScales, kBlockScales, out);
    for (std::size_t s = 0; s < kBlockScales; ++s)
      pack_nibbles(codes.data() + b * kBlockCodes + 8 * s, 4, out + kBlockScales + 8 * s);
  }
}

inline void unpack_codes(std::span<const std::byte> blocks, std::span<std::byte> codes) {
  for (std::size_t b = 0; b < blocks.size() / kBlockBytes; ++b) {
    const std::byte* in = blocks.data() + b * kBlockBytes + kBlockScales;
    for (std::size_t s = 0; s < kBlockScales; ++s)
      unpack_nibbles(in + 8 * s, 4, codes.data() + b * kBlockCodes + 8 * s);
  }
}

inline void unpack_scales(std::span<const std::byte> blocks, std::span<std::byte> scales) {
  for (std::size_t b = 0; b < blocks.size() / kBlockBytes; ++b)
    std::copy_n(blocks.data() + b * kBlockBytes, kBlockScales, scales.data() + b * kBlockScales);
}

/// Packs row-major codes and their exponents into blocks of MXFP4.
inline void pack_mxfp4(std::span<const std::byte> codes, std::span<const std::byte> exponents,
                       std::byte* blocks) {
  for (std::size_t b = 0; b < exponents.size(); ++b, blocks += kMxBlockBytes) {
    blocks[0] = exponents[b];
    pack_nibbles(codes.data() + b * kMxBlock / 2, 8, blocks + 1);
  }
}

inline void unpack_mxfp4_codes(std::span<const std::byte> blocks, std::span<std::byte> codes) {
  for (std::size_t b = 0; b < blocks.size() / kMxBlockBytes; ++b)
    unpack_nibbles(blocks.data() + b * kMxBlockBytes + 1, 8, codes.data() + b * kMxBlock / 2);
}

inline void unpack_exponents(std::span<const std::byte> blocks, std::span<std::byte> exponents) {
  for (std::size_t b = 0; b < exponents.size(); ++b) exponents[b] = blocks[b * kMxBlockBytes];
}

/// Writes the FP32 values of Q8_0. Products of FP16 and integers of eight bits are exact.
inline void unpack_q8_0(std::span<const std::byte> blocks, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(blocks.size()) / kQ8BlockBytes;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::byte* block = blocks.data() + b * kQ8BlockBytes;
    FP16 scale;
    std::memcpy(&scale.bits, block, sizeof scale.bits);
    for (std::int64_t i = 0; i < kQ8Block; ++i) {
      const auto code = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(block[2 + i]));
      const float value = scale.to_float() * static_cast<float>(code);
      std::memcpy(out.data() + 4 * (b * kQ8Block + i), &value, sizeof value);
    }
  }
}

}  // namespace nvfp4::gguf
