// The layout for tensor cores, on the CPU. What the GPU packs is compared with this in tests/cuda.
#include "backends/cuda/gemm/fragment_layout.h"
#include "fragment_cases.h"
#include "testing.h"

namespace nvfp4::fragment_weights_test {

using test::HostFragments;
using test::pack_on_host;
using test::random_weights;
using test::unpack_on_host;

/// Returns the expected unpacked weights: axis rows, linear scales, codes 0 in blocks with scale 0.
QuantizedMatrix expected(const QuantizedView& w) {
  const QuantizedShape& s = w.shape;
  QuantizedMatrix q({.rows = s.vectors(), .cols = s.depth(), .scope = s.scope});
  for (std::int64_t n = 0; n < s.vectors(); ++n)
    for (std::int64_t k = 0; k < s.depth(); ++k) {
      const bool rows = s.axis == BlockAxis::rows;
      const std::int64_t byte = rows ? (n * s.cols + k) / 2 : k / 2 * s.cols + n;
      const std::uint8_t scale = w.scales[s.scale_offset(n, k / 16)];
      const int code = w.codes[byte] >> (k % 2 * 4) & (scale == 0 ? 8 : 15);
      q.codes()[(n * s.depth() + k) / 2] |= static_cast<std::uint8_t>(code << (k % 2 * 4));
      q.scales()[n * s.blocks() + k / 16] = scale;
    }
  std::memcpy(q.global_scale(), w.global_scale,
              static_cast<std::size_t>(s.global_count()) * sizeof(float));
  return q;
}

/// The offset and the factor of widened scales in gemm/decode.cuh.
TEST(FragmentWeights, WidenedScalesKeepTheirValues) {
  EXPECT_EQ(cuda::widen_scale(0), 0);
  for (int bits = 1; bits <= E4M3::kMaxBits; ++bits) {
    const std::uint8_t wide = cuda::widen_scale(static_cast<std::uint8_t>(bits));
    const float scale = E4M3{static_cast<std::uint8_t>(bits)}.to_float();
    EXPECT_EQ(BF16{static_cast<std::uint16_t>(wide * 16 + 0x7580)}.to_float(), scale * 0x1p118f)
        << bits;
    EXPECT_EQ(FP16{static_cast<std::uint16_t>(wide * 128 + 0x2C00)}.to_float(), scale * 64) << bits;
    EXPECT_EQ(cuda::narrow_scale(wide), bits);
  }
}

TEST(FragmentWeights, SpreadPairsAreTheirValuesInBf16) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::uint32_t pair = cuda::spread_pair(byte);
    const auto value = [](std::uint32_t half) {
      return BF16{static_cast<std::uint16_t>(half)}.to_float() * 0x1p126f;
    };
    EXPECT_EQ(value(pair & 0xFFFF), E2M1{static_cast<std::uint8_t>(byte & 15)}.to_float()) << byte;
    EXPECT_EQ(value(pair >> 16), E2M1{static_cast<std::uint8_t>(byte >> 4)}.to_float()) << byte;
    EXPECT_EQ(cuda::gather_pair(pair), byte);
  }
}

TEST(FragmentWeights, ComeBackFromEveryShapeAxisAndLayout) {
  std::uint64_t seed = 1;
  for (const std::int64_t n : {1, 7, 8, 15, 63, 64, 65, 130, 200})
    for (const std::int64_t k : {16, 32, 48, 64, 80, 112, 128, 256, 400})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns}) {
        const ScaleLayout layouts[] = {ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                       ScaleLayout::tiled_8x4, ScaleLayout::packed_row_major,
                                       ScaleLayout::packed_mn_major};
        QuantizedShape s{.rows = n, .cols = k, .axis = axis};
        if (axis == BlockAxis::columns) std::swap(s.rows, s.cols);
        s.layout = layouts[++seed % std::size(layouts)];
        s.scope = seed / 3 % 2 ? GlobalScope::vector : GlobalScope::tensor;
        const QuantizedMatrix w = random_weights(s, seed);
        HostFragments packed = pack_on_host(w.view());
        EXPECT_EQ(packed.shape.bytes(), round_up(n, 64) * round_up(k, 64) / 16 * 9);
        EXPECT_TRUE(unpack_on_host(packed) == expected(w.view()))
            << n << "x" << k << " " << layout_name(s.layout);
      }
}

TEST(FragmentWeights, KeepEveryScaleAndCode) {
  for (int scale = 0; scale <= E4M3::kMaxBits; ++scale) {
    QuantizedMatrix w({.rows = 1, .cols = 16});
    w.scales()[0] = static_cast<std::uint8_t>(scale);
    w.global_scale()[0] = 1;
    for (int i = 0; i < 8; ++i) w.codes()[i] = static_cast<std::uint8_t>((2 * i + 1) << 4 | 2 * i);
    HostFragments packed = pack_on_host(w.view());
    EXPECT_TRUE(unpack_on_host(packed) == expected(w.view())) << scale;
  }
}

TEST(FragmentWeights, ArePaddedWithZeros) {
  const QuantizedMatrix w = random_weights({.rows = 70, .cols = 80}, 5);
  QuantizedMatrix grown({.rows = 128, .cols = 128});
  grown.global_scale()[0] = w.global_scale()[0];
  for (std::int64_t n = 0; n < 70; ++n) {
    std::memcpy(grown.codes() + n * 64, w.codes() + n * 40, 40);
    std::memcpy(grown.scales() + n * 8, w.scales() + n * 5, 5);
  }
  EXPECT_EQ(pack_on_host(w.view()).bytes, pack_on_host(grown.view()).bytes);
}

/// The byte of one element's lowest magnitude bit, worked out by hand from fragment_layout.h.
TEST(FragmentWeights, LieWhereTheDocumentationSays) {
  struct Example {
    int row, col, code, at, byte;
  };
  // Row 37 = 32 + 5: warp 2, g = 5; column 45 = 2·16 + 8 + 2·2 + 1: word 2, q = 2, the third pair.
  // Lane 22 has its words from (2·32 + 22)·16 on; that pair is rotated by 10, bit 22 from bit 12.
  for (const Example e : {Example{37, 45, 1, 1384 + 1, 0x10},
                          Example{37, 44, 8, 1384 + 0, 0x20},  // a sign: bit 15 from bit 5
                          Example{45, 45, 1, 1384 + 2, 0x01},  // the fourth pair, shared: bit 16
                          Example{45, 45, 4, 1388 + 2, 0x01},  // its rest is in the other word
                          Example{45, 61, 1, 1384 + 1, 0x04},  // of the second word: bit 10
                          Example{37, 61, 1, 1388 + 1, 0x10}}) {
    QuantizedMatrix w({.rows = 64, .cols = 64});
    std::memset(w.scales(), 0x38, 256);
    w.codes()[(e.row * 64 + e.col) / 2] = static_cast<std::uint8_t>(e.code << (e.col % 2 * 4));
    const HostFragments packed = pack_on_host(w.view());
    for (int i = 0; i < 2048; ++i)
      EXPECT_EQ(packed.bytes[static_cast<std::size_t>(i)], i == e.at ? e.byte : 0)
          << e.row << " " << e.col << " at " << i;
  }
  QuantizedMatrix w({.rows = 64, .cols = 64});
  w.scales()[37 * 4 + 2] = 0x38;
  w.scales()[45 * 4 + 3] = 0x01;
  const HostFragments packed = pack_on_host(w.view());
  for (int i = 2048; i < 2304; ++i)
    EXPECT_EQ(packed.bytes[static_cast<std::size_t>(i)], i == 2048 + 128 + 44   ? 0x38 + 0x18
                                                         : i == 2048 + 128 + 47 ? 0x08
                                                                                : 0)
        << i;
}

/// The bounds of products see a scale that is off by one step, in a single block.
TEST(FragmentGemmBounds, CatchOneWrongScale) {
  for (const std::int64_t k : {64, 480}) {
    const QuantizedMatrix w = test::weights(40, k, 3);
    const Matrix x = test::make(test::Fill::gaussian, 5, k, 4, DType::bf16);
    const Matrix y = test::product(x.view(), pack_weights(w.view()));
    EXPECT_LE(test::worst_tensor_core_error(x.view(), w.view(), y.view()), 1);
    for (const std::int64_t block : {0, 7, 19}) {
      QuantizedMatrix wrong = to_device(w.view(), {});
      std::uint8_t& scale = wrong.scales()[block * (k / 16) % (40 * (k / 16))];
      ASSERT_GT(scale, 0x10);
      --scale;
      EXPECT_GT(test::worst_tensor_core_error(x.view(), wrong.view(), y.view()), 1);
    }
  }
}

/// Gate and up of I outputs, in groups of `interleave` (0: halves), as they are packed for SwiGLU.
QuantizedMatrix in_packed_order(const QuantizedMatrix& w, std::int64_t interleave) {
  const std::int64_t n = w.shape().rows, outputs = n / 2, row_bytes = w.shape().cols / 2;
  QuantizedMatrix q(w.shape());
  std::int64_t packed = 0;
  for (std::int64_t i0 = 0; i0 < outputs; i0 += 8)
    for (const bool up : {false, true})
      for (std::int64_t i = i0; i < i0 + 8; ++i, ++packed) {
        const std::int64_t from = interleave == 0 ? i + (up ? outputs : 0)
                                                  : i / interleave * 2 * interleave +
                                                        (up ? interleave : 0) + i % interleave;
        std::memcpy(q.codes() + packed * row_bytes, w.codes() + from * row_bytes,
                    static_cast<std::size_t>(row_bytes));
        std::memcpy(q.scales() + packed * row_bytes / 8, w.scales() + from * row_bytes / 8,
                    static_cast<std::size_t>(row_bytes / 8));
      }
  std::copy_n(w.global_scale(), w.shape().global_count(), q.global_scale());
  return q;
}

TEST(FragmentWeights, PutGateAndUpOfEightOutputsTogether) {
  for (const int interleave : {0, 1, 4, 8, 16})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      const QuantizedMatrix w = random_weights({.rows = 96, .cols = 208, .scope = scope}, 7);
      HostFragments packed = pack_on_host(w.view(), 1, GateUp{interleave});
      EXPECT_EQ(packed.bytes, pack_on_host(in_packed_order(w, interleave).view()).bytes);
      EXPECT_TRUE(unpack_on_host(packed) == expected(w.view())) << interleave;
    }
}

}  // namespace nvfp4::fragment_weights_test
