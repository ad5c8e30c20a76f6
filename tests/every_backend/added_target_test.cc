// Adding a CPU target takes one row. A test target is listed, chosen by name, quantizes and
// multiplies by its row alone.
#include "backends/cpu/cpu.h"
#include "nvfp4/gemm.h"
#include "test_matrices.h"
#include "testing.h"

namespace nvfp4::added_target_test {

using ::testing::HasSubstr;

void (*encode_of_the_target)(const EncodeJob& job, const Tile& tile);
std::atomic<int> encoded;

/// Kernels of its own, over those of the target: here the same, counted.
bool fill_tartan(Backend& backend) {
  encode_of_the_target = backend.encode;
  backend.encode = [](const EncodeJob& job, const Tile& tile) {
    ++encoded;
    encode_of_the_target(job, tile);
  };
  return true;
}

/// The target of Highway that is the default here.
std::int64_t highway_of_this_machine() {
  for (const BackendInfo& b : backends())
    for (const cpu::Target& t : cpu::targets())
      if (b.available && b.name == t.name && t.fill == nullptr) return t.highway;
  return 0;
}

BackendInfo listed(std::string_view name) {
  for (const BackendInfo& b : backends())
    if (b.name == name) return b;
  return {};
}

class ATargetMore : public testing::Test {
 protected:
  void SetUp() override {
    if (highway_ == 0) GTEST_SKIP() << "the CPU has none of the SIMD targets";
  }
  const std::int64_t highway_ = highway_of_this_machine();
};

TEST_F(ATargetMore, QuantizesAndMultipliesByItsRow) {
  const std::string best = listed("cpu").description;
  const cpu::AddedTarget added({highway_, "cpu-tartan", "a loom", fill_tartan});
  EXPECT_TRUE(listed("cpu-tartan").available);
  EXPECT_EQ(listed("cpu-tartan").description, "a loom");
  EXPECT_EQ(listed("cpu").description, best);
  EXPECT_EQ(select_backend("cpu-tartan").name, "cpu-tartan");

  const Matrix x = test::make(test::Fill::gaussian, 40, 96, 1);
  encoded = 0;
  const QuantizedMatrix q = quantize(x.view(), {.backend = "cpu-tartan"});
  EXPECT_GT(encoded, 0);
  EXPECT_TRUE(q == quantize(x.view(), {.backend = "reference"}));

  const PackedWeights w = pack_weights(q.view());
  const GemmDescription d = {
      .m = 40, .scheme = Scheme::w4a4, .out = DType::f32, .backend = "cpu-tartan"};
  const GemmPlan plan = plan_gemm(w, d);
  EXPECT_EQ(plan.kernel(), "cpu-tartan_w4a4");
  Matrix y(DType::f32, 40, 40), want(DType::f32, 40, 40);
  gemm(plan, {.x = q.view(), .weights = w, .out = y.span()});
  GemmDescription by_reference = d;
  by_reference.backend = "reference";
  gemm(plan_gemm(w, by_reference), {.x = q.view(), .weights = w, .out = want.span()});
  EXPECT_EQ(std::memcmp(y.data<float>(), want.data<float>(), 40 * 40 * sizeof(float)), 0);
}

TEST_F(ATargetMore, UnsupportedCpuIsRefusedWithTheNeed) {
  const cpu::AddedTarget added(
      {highway_, "cpu-tartan", "a loom", [](Backend& /*backend*/) { return false; }});
  EXPECT_FALSE(listed("cpu-tartan").available);
  try {
    select_backend("cpu-tartan");
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cpu-tartan"));
    EXPECT_THAT(e.what(), HasSubstr("this CPU lacks a loom"));
  }
}

TEST_F(ATargetMore, IsGoneWithTheObjectThatAddedIt) {
  { const cpu::AddedTarget added({highway_, "cpu-tartan", "a loom"}); }
  EXPECT_EQ(listed("cpu-tartan").name, "");
  EXPECT_THROW(select_backend("cpu-tartan"), ValueError);
}

}  // namespace nvfp4::added_target_test
