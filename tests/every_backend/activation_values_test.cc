// Checks values of operations that write more or less than one matrix. All backends share this
// code, so comparing them would find nothing.
#include "placed.h"
#include "testing.h"

namespace nvfp4::activation_values_test {

using test::Fill;
using test::make;

class ActivationValues : public testing::TestWithParam<std::string> {
 protected:
  QuantizeOptions options(QuantizeOptions o = {}) const {
    o.quantizer = Quantizer::max;
    o.backend = GetParam();
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(All, ActivationValues, testing::ValuesIn(test::available_backends()),
                         [](const auto& info) { return test::identifier(info.param); });

/// Rows [r0, r1) of q, and whether each byte of the others is 0.
struct Rows {
  std::vector<std::uint8_t> codes, scales;
  bool operator==(const Rows&) const = default;
};
Rows rows_of(const QuantizedMatrix& q, std::int64_t r0, std::int64_t r1) {
  const QuantizedShape& s = q.shape();
  Rows rows;
  for (std::int64_t r = r0; r < r1; ++r) {
    for (std::int64_t i = 0; i < s.cols / 2; ++i)
      rows.codes.push_back(q.codes()[r * s.cols / 2 + i]);
    for (std::int64_t b = 0; b < s.blocks(); ++b)
      rows.scales.push_back(q.scales()[s.scale_offset(r, b)]);
  }
  return rows;
}
Rows zeros(const QuantizedShape& s, std::int64_t rows) {
  return {std::vector<std::uint8_t>(static_cast<std::size_t>(rows * s.cols / 2)),
          std::vector<std::uint8_t>(static_cast<std::size_t>(rows * s.blocks()))};
}

TEST_P(ActivationValues, RowsOutsideGroupsAreZero) {
  const std::int64_t rows = 150, cols = 80;
  // Rows 10 to 60 and 61 to 150 (cut off), and an empty group.
  const std::int32_t starts[] = {10, 60, 61}, ends[] = {60, 60, 1000};
  Matrix x = make(Fill::gaussian, rows, cols, 1, DType::bf16);
  test::set(x.span(), 3, 5, 1000.0f);    // must not count
  test::set(x.span(), 60, 7, -2000.0f);  // nor this
  for (const ScaleLayout layout :
       {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::packed_mn_major})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      const QuantizeOptions o = options({.layout = layout, .scope = scope});
      const QuantizedShape shape{.rows = rows, .cols = cols, .layout = layout, .scope = scope};
      QuantizedMatrix got = test::poisoned(shape, {});
      quantize_grouped_into(x.view(), starts, ends, got.span(), o);

      Matrix kept =
          make(Fill::gaussian, rows, cols, 1, DType::bf16);  // the same without the others
      for (std::int64_t r = 0; r < rows; ++r)
        if (r < 10 || r == 60)
          for (std::int64_t c = 0; c < cols; ++c) test::set(kept.span(), r, c, 0.0f);
      const QuantizedMatrix want = quantize(kept.view(), o);
      EXPECT_EQ(rows_of(got, 10, 60), rows_of(want, 10, 60));
      EXPECT_EQ(rows_of(got, 61, 150), rows_of(want, 61, 150));
      EXPECT_EQ(rows_of(got, 0, 10), zeros(shape, 10));
      EXPECT_EQ(rows_of(got, 60, 61), zeros(shape, 1));
      for (std::int64_t i = 0; i < shape.global_count(); ++i)
        EXPECT_EQ(got.global_scale()[i], want.global_scale()[i]) << i;  // 1 for a row of zeros
      EXPECT_TRUE(got == want);  // padding too: a row of zeros has the scales of no row
    }
}

TEST_P(ActivationValues, GlobalScalesOutsideGroupsAreStored) {
  const Matrix x = make(Fill::gaussian, 3, 32, 2);
  const std::vector<GlobalScale> globals(3, GlobalScale::from_multiplier(0.25f));
  const std::int32_t starts[] = {1}, ends[] = {2};
  QuantizedMatrix q({.rows = 3, .cols = 32, .scope = GlobalScope::vector});
  quantize_grouped_into(x.view(), starts, ends, q.span(),
                        options({.scope = GlobalScope::vector, .global = globals}));
  for (int r = 0; r < 3; ++r) EXPECT_EQ(q.global_scale()[r], 0.25f);
}

template <class T>
void expect_staged(const QuantizeOptions& o, IndexType type, const std::vector<T>& values) {
  const Matrix x = make(Fill::gaussian, 2, 48, 3, DType::bf16);
  // Three of each row of four; the fourth and what is behind the result stay as they are.
  std::vector<T> ids;
  for (const std::size_t i : {0, 1, 2, 0, 2, 1, 0, 0}) ids.push_back(values[i]);
  const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 9, 0.4f, 0.5f, 0.6f, 9};
  std::vector<std::int64_t> staged_ids(10, -7);
  std::vector<float> staged_weights(10, -7.0f);
  const QuantizedShape shape{
      .rows = 2, .cols = 48, .layout = ScaleLayout::packed_row_major, .scope = GlobalScope::vector};
  QuantizedMatrix q = test::poisoned(shape, {});
  stage_moe_into(x.view(),
                 {.ids = ids.data(),
                  .id_type = type,
                  .id_stride = 4,
                  .weights = weights.data(),
                  .weight_stride = 4,
                  .rows = 2,
                  .top_k = 3},
                 q.span(), {staged_ids.data(), 5, staged_weights.data(), 5}, o);
  EXPECT_TRUE(q == quantize(x.view(), o));
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t k = 0; k < 5; ++k) {
      const std::size_t to = 5 * r + k, from = 4 * r + k;
      EXPECT_EQ(staged_ids[to], k < 3 ? static_cast<std::int64_t>(ids[from]) : -7);
      EXPECT_EQ(staged_weights[to], k < 3 ? weights[from] : -7.0f);
    }
}

TEST_P(ActivationValues, StagingWidensIdsAndCopiesWeights) {
  const QuantizeOptions o =
      options({.layout = ScaleLayout::packed_row_major, .scope = GlobalScope::vector});
  const auto check = [&]<class T>(IndexType type, T) {
    using Limits = std::numeric_limits<T>;
    expect_staged<T>(o, type, {Limits::lowest(), Limits::max(), T{5}});
  };
  check(IndexType::i8, std::int8_t{});
  check(IndexType::u8, std::uint8_t{});
  check(IndexType::i16, std::int16_t{});
  check(IndexType::u16, std::uint16_t{});
  check(IndexType::i32, std::int32_t{});
  check(IndexType::u32, std::uint32_t{});
  check(IndexType::i64, std::int64_t{});
  check(IndexType::u64, std::uint64_t{});
}

// The origin has no global scale: {1, 1} gives its bytes, words of four scales in order.
TEST_P(ActivationValues, StagingWithoutGlobalScaleHasOneLevel) {
  Matrix x(DType::f32, 1, 64);
  for (std::int64_t b = 0; b < 4; ++b)
    test::set(x.span(), 0, 16 * b, 6.0f * static_cast<float>(1 << b));
  const GlobalScale one;
  QuantizedMatrix q({.rows = 1, .cols = 64, .layout = ScaleLayout::packed_row_major});
  stage_moe_into(x.view(), {.rows = 1}, q.span(), {},
                 options({.layout = ScaleLayout::packed_row_major, .global = {&one, 1}}));
  std::uint32_t word;
  std::memcpy(&word, q.scales(), 4);
  EXPECT_EQ(word, 0x50484038u);  // 1, 2, 4, 8
}

TEST_P(ActivationValues, NoColumnsAreNoWork) {
  const Matrix x(DType::bf16, 3, 0), mix(DType::f32, 3, 2);
  const QuantizeOptions o = options({.scope = GlobalScope::vector});
  QuantizedMatrix q = test::poisoned({.rows = 3, .cols = 0, .scope = GlobalScope::vector}, {});
  const auto expect_ones = [&] {
    for (int r = 0; r < 3; ++r) EXPECT_EQ(q.global_scale()[r], 1.0f);
  };
  quantize_into(x.view(), q.span(), o);
  expect_ones();
  rms_norm_quantize_into(x.view(), {}, q.span(), {}, o);
  expect_ones();
  mix_rms_norm_quantize_into(x.view(), mix.view(), {}, q.span(), {}, o);
  expect_ones();
  swiglu_quantize_into(x.view(), q.span(), {}, o);
  expect_ones();
}

TEST_P(ActivationValues, NanAndInfinityStayInTheirRow) {
  Matrix x = make(Fill::gaussian, 4, 64, 5);
  const Matrix clean = make(Fill::gaussian, 4, 64, 5);
  test::set(x.span(), 1, 9, NAN);
  test::set(x.span(), 2, 9, INFINITY);
  const std::vector<float> weight(64, 1.0f);
  std::vector<float> rstd(4);
  const QuantizeOptions o = options({.scope = GlobalScope::vector});
  QuantizedMatrix got({.rows = 4, .cols = 64, .scope = GlobalScope::vector});
  QuantizedMatrix want(got.shape());
  rms_norm_quantize_into(x.view(), weight, got.span(), {.rstd = rstd.data()}, o);
  rms_norm_quantize_into(clean.view(), weight, want.span(), {}, o);
  for (const std::int64_t r : {0, 3}) EXPECT_EQ(rows_of(got, r, r + 1), rows_of(want, r, r + 1));
  EXPECT_TRUE(std::isnan(rstd[1]));
  for (const std::uint8_t byte : rows_of(got, 1, 2).codes) EXPECT_EQ(byte, 0x77);
  EXPECT_EQ(rstd[2], 0.0f);
  for (const std::int64_t r : {1, 2}) {
    EXPECT_EQ(got.global_scale()[r], 1.0f);
    for (const std::uint8_t scale : rows_of(got, r, r + 1).scales) EXPECT_EQ(scale, 0);
  }
}

}  // namespace nvfp4::activation_values_test
