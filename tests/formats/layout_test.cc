#include "nvfp4/layout.h"

#include "nvfp4/quantize.h"
#include "testing.h"

namespace nvfp4::layout_test {

constexpr ScaleLayout kLayouts[] = {ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                    ScaleLayout::tiled_8x4, ScaleLayout::packed_row_major,
                                    ScaleLayout::packed_mn_major};

TEST(Layout, WorkedExampleTiled128x4) {
  EXPECT_EQ(scale_offset(ScaleLayout::tiled_128x4, 37, 6, 64, 8), 598);
  EXPECT_EQ(scale_offset(ScaleLayout::tiled_128x4, 200, 3, 256, 8), 1163);
  EXPECT_EQ(scale_bytes(ScaleLayout::tiled_128x4, 64, 8), 1024);
}

// The five-dimensional form [1, M/128, K/64, 2, 256] has the same bytes.
TEST(Layout, WorkedExampleFiveDimensional) {
  const std::int64_t offset = scale_offset(ScaleLayout::tiled_128x4, 200, 13, 256, 32);
  EXPECT_EQ(offset, 5769);
  EXPECT_EQ(offset / 512 / 8, 1);  // m / 128
  EXPECT_EQ(offset / 512 % 8, 3);  // k / 4
  EXPECT_EQ(offset % 512 / 256, 0);
  EXPECT_EQ(offset % 256, 137);
}

TEST(Layout, WorkedExampleTiled8x4) {
  EXPECT_EQ(scale_offset(ScaleLayout::tiled_8x4, 13, 6, 16, 8), 118);
}

TEST(Layout, WorkedExampleGrouped2D) {
  const std::int64_t ends[] = {100, 230, 231};
  EXPECT_EQ(grouped_scale_base(ScaleLayout::tiled_128x4, ends, 0, 8), 0);
  EXPECT_EQ(grouped_scale_base(ScaleLayout::tiled_128x4, ends, 1, 8), 1024);
  EXPECT_EQ(grouped_scale_base(ScaleLayout::tiled_128x4, ends, 2, 8), 3072);
  EXPECT_EQ(grouped_scale_base(ScaleLayout::tiled_128x4, ends, 3, 8), 4096);
  EXPECT_EQ(1024 + scale_offset(ScaleLayout::tiled_128x4, 129, 5, 130, 8), 2577);
}

TEST(Layout, WorkedExampleGrouped3D) {
  EXPECT_EQ(grouped_scale_base(ScaleLayout::tiled_128x4, std::int64_t{192}, 1, 8) +
                scale_offset(ScaleLayout::tiled_128x4, 150, 5, 192, 8),
            3937);
}

TEST(Layout, WorkedExamplePackedMnMajor) {
  const std::int64_t offset = scale_offset(ScaleLayout::packed_mn_major, 37, 6, 200, 8);
  EXPECT_EQ(offset / 4, 237);
  EXPECT_EQ(offset % 4, 2);
  EXPECT_EQ(utccp_row(37), 21);
  EXPECT_EQ(utccp_row(200), 162);
}

TEST(Layout, PackedRowMajorIsWordsOfFourScales) {
  EXPECT_EQ(scale_offset(ScaleLayout::packed_row_major, 2, 5, 3, 6), 2 * 8 + 5);
  EXPECT_EQ(scale_bytes(ScaleLayout::packed_row_major, 3, 6), 24);
}

// A DeepGEMM column, permuted for UTCCP, has the bytes of one 128x4 tile.
TEST(Layout, PermutedMnMajorColumnIsATile) {
  for (std::int64_t row = 0; row < 256; ++row)
    for (std::int64_t block = 0; block < 8; ++block)
      EXPECT_EQ(scale_offset(ScaleLayout::packed_mn_major, utccp_row(row), block, 256, 8) % 512,
                scale_offset(ScaleLayout::tiled_128x4, row, block, 256, 8) % 512);
}

TEST(Layout, EveryScaleHasItsOwnByte) {
  for (const ScaleLayout layout : kLayouts)
    for (const auto& [rows, blocks] : {std::array<std::int64_t, 2>{1, 1},
                                       {7, 3},
                                       {8, 4},
                                       {127, 5},
                                       {128, 4},
                                       {129, 9},
                                       {300, 17},
                                       {0, 4},
                                       {4, 0}}) {
      const std::int64_t bytes = scale_bytes(layout, rows, blocks);
      std::vector<int> used(static_cast<std::size_t>(bytes));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t offset = scale_offset(layout, r, b, rows, blocks);
          ASSERT_GE(offset, 0);
          ASSERT_LT(offset, bytes) << layout_name(layout);
          ASSERT_EQ(used[static_cast<std::size_t>(offset)]++, 0) << layout_name(layout);
        }
    }
}

std::vector<std::uint8_t> numbered(std::int64_t n) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(1 + i % 126);
  return bytes;
}

TEST(Relayout, ThereAndBackIsTheIdentity) {
  for (const ScaleLayout layout : kLayouts)
    for (const auto& [rows, blocks] :
         {std::array<std::int64_t, 2>{1, 1}, {7, 3}, {129, 9}, {300, 17}}) {
      const std::vector<std::uint8_t> linear = numbered(rows * blocks);
      std::vector<std::uint8_t> out(static_cast<std::size_t>(scale_bytes(layout, rows, blocks)),
                                    0xAA);
      relayout_scales(linear, ScaleLayout::linear, out, layout, rows, blocks);
      std::int64_t zeros = 0;
      for (const std::uint8_t b : out) zeros += b == 0;
      EXPECT_EQ(zeros, static_cast<std::int64_t>(out.size()) - rows * blocks);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t b = 0; b < blocks; ++b)
          ASSERT_EQ(out[static_cast<std::size_t>(scale_offset(layout, r, b, rows, blocks))],
                    linear[static_cast<std::size_t>(r * blocks + b)]);
      std::vector<std::uint8_t> back(linear.size(), 0xAA);
      relayout_scales(out, layout, back, ScaleLayout::linear, rows, blocks);
      EXPECT_EQ(back, linear);
    }
}

TEST(Relayout, GroupsAreLaidOutOneAfterTheOther) {
  const std::int64_t ends[] = {100, 100, 230, 231};
  const std::vector<std::uint8_t> linear = numbered(231 * 8);
  std::vector<std::uint8_t> out(4096, 0xAA);
  relayout_grouped_scales(linear, ScaleLayout::linear, out, ScaleLayout::tiled_128x4, ends, 8);
  EXPECT_EQ(out[2577], linear[229 * 8 + 5]);  // group 2, row 129, block 5
  EXPECT_EQ(out[3072], linear[230 * 8]);
}

TEST(Relayout, RefusesWrongBuffersAndDecreasingEnds) {
  const std::vector<std::uint8_t> in(64);
  std::vector<std::uint8_t> out(511);
  EXPECT_THROW(relayout_scales(in, ScaleLayout::linear, out, ScaleLayout::tiled_128x4, 16, 4),
               ShapeError);
  out.resize(512);
  EXPECT_THROW(relayout_scales(in, ScaleLayout::linear, out, ScaleLayout::tiled_128x4, 17, 4),
               ShapeError);
  const std::int64_t ends[] = {16, 8};
  EXPECT_THROW(
      relayout_grouped_scales(in, ScaleLayout::linear, out, ScaleLayout::tiled_128x4, ends, 4),
      ShapeError);
}

}  // namespace nvfp4::layout_test
