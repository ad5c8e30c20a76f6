// How layers pack their weights for a GPU, on the CPU.
#include "layers/fragments.h"

#include <gtest/gtest.h>

#include "layers/layer_cases.h"
#include "layers/weights.h"

namespace nvfp4 {
namespace {

using test::Fill;
using test::make;

constexpr std::int64_t kN = 21, kK = 80;

FragmentWeights fragments(const std::vector<std::vector<WeightView>>& groups) {
  return fragment_parts("test", groups, Quantizer::mse, "", {});
}

TEST(FragmentParts, GroupsComeBackAsTheyWere) {
  std::vector<QuantizedMatrix> w;
  std::vector<std::vector<WeightView>> groups;
  for (std::uint64_t g = 0; g < 3; ++g) w.push_back(test::weights(kN, kK, g + 1));
  for (const QuantizedMatrix& q : w) groups.push_back({q.view()});
  const FragmentWeights packed = fragments(groups);
  EXPECT_EQ(packed.scope(), GlobalScope::tensor);
  for (std::size_t g = 0; g < w.size(); ++g)
    EXPECT_EQ(unpack_fragments(packed, static_cast<std::int64_t>(g)),
              unpack_weights(pack_weights(w[g].view())));
}

TEST(FragmentParts, PartsAndScopesMayDiffer) {
  const QuantizedMatrix a = test::weights(kN, kK, 1), b = test::weights(kN, kK, 2),
                        rows = test::uneven_weights(2 * kN, kK, 3);
  const Matrix dense = make(Fill::student, 2 * kN, kK, 4, DType::bf16);
  const Matrix columns = test::transposed(dense.view());
  const FragmentWeights packed = fragments({{a.view(), b.view()},
                                            {rows.view()},
                                            {dense.view()},
                                            {WeightView(columns.view(), BlockAxis::columns)},
                                            {a.view(), a.view()}});
  ASSERT_EQ(packed.groups(), 5);
  EXPECT_EQ(packed.rows(), 2 * kN);
  EXPECT_EQ(packed.scope(), GlobalScope::vector);
  const QuantizedView ab[] = {a.view(), b.view()};
  EXPECT_EQ(unpack_fragments(packed, 0), unpack_weights(pack_weights(ab)));
  EXPECT_EQ(unpack_fragments(packed, 1), unpack_weights(pack_weights(rows.view())));
  const QuantizedMatrix q = quantize(dense.view(), {.quantizer = Quantizer::mse});
  for (const std::int64_t g : {2, 3}) {
    const QuantizedMatrix got = unpack_fragments(packed, g);
    EXPECT_EQ(std::memcmp(got.codes(), q.codes(), static_cast<std::size_t>(kN * kK)), 0);
    EXPECT_EQ(std::memcmp(got.scales(), q.scales(), static_cast<std::size_t>(2 * kN * kK / 16)), 0);
    for (std::int64_t r = 0; r < 2 * kN; ++r) EXPECT_EQ(got.global_scale()[r], *q.global_scale());
  }
  for (std::int64_t r = 0; r < 2 * kN; ++r)
    EXPECT_EQ(unpack_fragments(packed, 4).global_scale()[r], *a.global_scale());
}

TEST(FragmentParts, NamesWhatIsWrong) {
  const QuantizedMatrix a = test::weights(kN, kK, 1), other = test::weights(kN + 1, kK, 2);
  EXPECT_THROW(fragments({{}}), ShapeError);
  EXPECT_THROW(fragments({{a.view()}, {other.view()}}), ShapeError);
  QuantizedMatrix bad = to_device(a.view(), {});
  bad.scales()[17] = 0xC0;
  WeightView named(bad.view());
  named.name = "layer.o_proj.weight";
  const std::string message = test::message_of<ValueError>([&] { fragments({{named}}); });
  EXPECT_TRUE(test::contains(message, "layer.o_proj.weight")) << message;
}

TEST(GroupedLinear, TakesEndsOfEitherType) {
  std::vector<QuantizedMatrix> w;
  std::vector<WeightView> views;
  for (std::uint64_t g = 0; g < 3; ++g) w.push_back(test::weights(kN, kK, g + 1));
  for (const QuantizedMatrix& q : w) views.emplace_back(q.view());
  const GroupedLinear linear(views);
  const Matrix x = make(Fill::gaussian, 9, kK, 7, DType::bf16);
  const std::vector<std::int64_t> ends = {4, 4, 9};
  const std::vector<std::int32_t> small = {4, 4, 9};
  Matrix want(DType::f32, 9, kN), got(DType::f32, 9, kN), again(DType::f32, 9, kN);
  linear.forward_rows_into(x.view(), ends, want.span());
  linear.forward_rows_into(x.view(), small, got.span());
  linear.forward_rows_into(linear.quantize(x.view()), small, again.span());
  EXPECT_TRUE(test::same_bits(got, want));
  EXPECT_TRUE(test::same_bits(again, want));
}

}  // namespace
}  // namespace nvfp4
