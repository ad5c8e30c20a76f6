#include "checkpoint/plan/plan.h"
#include "testing.h"

namespace nvfp4::checkpoint::spec_table_test {

using safetensors::DType;
using safetensors::TensorSpec;

std::vector<TensorSpec> some_specs(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < count; ++i) {
    std::string name;
    // Parts that begin with one another, bytes above 127, names without a dot, empty ones.
    for (std::size_t n = random() % 7; n > 0; --n) name += "ab..\xC3"[random() % 5];
    TensorSpec spec{name, random() % 2 == 0 ? DType::u8 : DType::f32, {}};
    for (std::size_t n = random() % 4; n > 0; --n)
      spec.shape.push_back(static_cast<std::int64_t>(random() % 3));
    specs.push_back(std::move(spec));
  }
  return specs;
}

SpecTable table_of(const std::vector<TensorSpec>& specs) {
  SpecTable table;
  for (const TensorSpec& spec : specs) table.push_back(spec);
  return table;
}

void expect_same(const SpecTable& table, const std::vector<TensorSpec>& specs) {
  ASSERT_EQ(table.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(table.name(i), specs[i].name);
    EXPECT_EQ(table[i].name, specs[i].name);
    EXPECT_EQ(table[i].dtype, specs[i].dtype);
    EXPECT_EQ(table[i].shape, specs[i].shape);
  }
}

int sign(int x) { return (x > 0) - (x < 0); }

TEST(SpecTable, GivesBackWhatWasPutIn) {
  expect_same(table_of(some_specs(500, 1)), some_specs(500, 1));
}

TEST(SpecTable, ComparesNamesAsStringsDo) {
  const std::vector<TensorSpec> a = some_specs(200, 2), b = some_specs(200, 3);
  const SpecTable table = table_of(a), other = table_of(b);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j)
      ASSERT_EQ(sign(table.compare_names(i, other, j)), sign(a[i].name.compare(b[j].name)))
          << a[i].name << " and " << b[j].name;
}

TEST(SpecTable, BytesAreThoseOfDtypeAndShape) {
  SpecTable table;
  table.push_back({"a.weight", DType::f4, {3, 16}});
  table.push_back({"a.scalar", DType::f32, {}});
  table.push_back({"a.empty", DType::f32, {0, 7}});
  EXPECT_EQ(table.bytes(0), 24u);
  EXPECT_EQ(table.bytes(1), 4u);
  EXPECT_EQ(table.bytes(2), 0u);
}

TEST(SpecTable, AnotherOrder) {
  std::vector<TensorSpec> specs = some_specs(300, 4);
  SpecTable table = table_of(specs);
  std::vector<std::uint32_t> order(specs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  table.reorder(order);
  std::vector<TensorSpec> sorted;
  for (const std::uint32_t i : order) sorted.push_back(specs[i]);
  expect_same(table, sorted);
}

}  // namespace nvfp4::checkpoint::spec_table_test
