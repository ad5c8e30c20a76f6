// Tests of how layers pack their weights.
#include <gtest/gtest.h>

#include "layers/layer_cases.h"
#include "layers/weights.h"

namespace nvfp4::pack_groups_test {

using test::Fill;
using test::make;

constexpr std::int64_t kN = 21, kK = 80;

PackedWeights packed_groups(const std::vector<std::vector<WeightView>>& groups) {
  return pack_groups("test", groups, Quantizer::mse, "", {});
}

TEST(PackGroups, GroupsComeBackAsTheyWere) {
  std::vector<QuantizedMatrix> w;
  std::vector<std::vector<WeightView>> groups;
  for (std::uint64_t g = 0; g < 3; ++g) w.push_back(test::weights(kN, kK, g + 1));
  for (const QuantizedMatrix& q : w) groups.push_back({q.view()});
  const PackedWeights packed = packed_groups(groups);
  EXPECT_EQ(packed.shape().scope, GlobalScope::tensor);
  for (std::size_t g = 0; g < w.size(); ++g)
    EXPECT_EQ(unpack_weights(packed, static_cast<std::int64_t>(g)),
              unpack_weights(pack_weights(w[g].view())));
}

TEST(PackGroups, PartsAndScopesMayDiffer) {
  const QuantizedMatrix a = test::weights(kN, kK, 1), b = test::weights(kN, kK, 2),
                        rows = test::uneven_weights(2 * kN, kK, 3);
  const Matrix dense = make(Fill::student, 2 * kN, kK, 4, DType::bf16);
  const Matrix columns = test::transposed(dense.view());
  const PackedWeights packed = packed_groups({{a.view(), b.view()},
                                              {rows.view()},
                                              {dense.view()},
                                              {WeightView(columns.view(), BlockAxis::columns)},
                                              {a.view(), a.view()}});
  ASSERT_EQ(packed.groups(), 5);
  EXPECT_EQ(packed.rows(), 2 * kN);
  EXPECT_EQ(packed.shape().scope, GlobalScope::vector);
  const QuantizedView ab[] = {a.view(), b.view()};
  EXPECT_EQ(unpack_weights(packed, 0), unpack_weights(pack_weights(ab)));
  EXPECT_EQ(unpack_weights(packed, 1), unpack_weights(pack_weights(rows.view())));
  const QuantizedMatrix q = quantize(dense.view(), {.quantizer = Quantizer::mse});
  for (const std::int64_t g : {2, 3}) {
    const QuantizedMatrix got = unpack_weights(packed, g);
    EXPECT_EQ(std::memcmp(got.codes(), q.codes(), static_cast<std::size_t>(kN * kK)), 0);
    EXPECT_EQ(std::memcmp(got.scales(), q.scales(), static_cast<std::size_t>(2 * kN * kK / 16)), 0);
    for (std::int64_t r = 0; r < 2 * kN; ++r) EXPECT_EQ(got.global_scale()[r], *q.global_scale());
  }
  for (std::int64_t r = 0; r < 2 * kN; ++r)
    EXPECT_EQ(unpack_weights(packed, 4).global_scale()[r], *a.global_scale());
}

TEST(PackGroups, NamesWhatIsWrong) {
  const QuantizedMatrix a = test::weights(kN, kK, 1), other = test::weights(kN + 1, kK, 2);
  EXPECT_THROW(packed_groups({{}}), ShapeError);
  EXPECT_THROW(packed_groups({{a.view()}, {other.view()}}), ShapeError);
  QuantizedMatrix bad = to_device(a.view(), {});
  bad.scales()[17] = 0xC0;
  WeightView named(bad.view());
  named.name = "layer.o_proj.weight";
  const std::string message = test::message_of<ValueError>([&] { packed_groups({{named}}); });
  EXPECT_TRUE(test::contains(message, "layer.o_proj.weight")) << message;
}

}  // namespace nvfp4::pack_groups_test
