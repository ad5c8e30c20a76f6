// Adding a family takes one row. A test family is excluded, fused, stacked and renamed by its row
// alone.
#include "checkpoint/checkpoints.h"
#include "checkpoint/families/experts.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/excludes.h"
#include "checkpoint/gguf/names.h"

namespace nvfp4::added_family_test {

using namespace checkpoint;

constexpr NameRule kKept[] = {{"loom", "a loom is no matrix product", Where::last, "loom"},
                              {"router", "it chooses looms", Where::last, "gating"}};
constexpr std::string_view kFused[] = {"warp,weft"};
constexpr gguf::NamePair kPairs[] = {{".warp", ".warp", {}, true}};
constexpr gguf::NameGroup kGroups[] = {{kPairs}};
constexpr gguf::Architecture kNames = {"tartan", "TartanForCausalLM", "tartan", kGroups};
constexpr Family kTartan = {.model_types = "tartan tartan_*",
                            .modules = kKept,
                            .fused = kFused,
                            .stacks = Stacks::interleaved,
                            .only_stacks = true,
                            .second_names = "lm.decoder",
                            .f32 = "loom selvage.weight",
                            .gguf = &kNames};

const std::vector<std::string> kTypes = {"tartan_text"};

TEST(AFamilyMore, IsQuantizedByItsRow) {
  const TempDir dir;
  write_model(dir / "in",
              {{random_tensor("model.layers.0.warp.weight", {64, 64}),
                random_tensor("model.layers.0.weft.weight", {32, 64}, safetensors::DType::bf16),
                random_tensor("model.layers.0.loom.weight", {64, 64}),
                random_tensor("model.layers.0.experts.gate_up_proj", {2, 64, 64}),
                random_tensor("model.layers.0.experts.down_proj", {2, 64, 64})}},
              R"({"model_type": "tartan"})");
  // Without its row nothing tells rows from columns of square experts.
  expect_error<ValueError>([&] { quantize_checkpoint(dir / "in", dir / "out"); },
                           {"gate_up_proj", "do not tell rows from columns"});
  const AddedFamily added(kTartan);
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out");
  for (const TensorReport& t : report.tensors)
    EXPECT_EQ(t.reason, t.name == "model.layers.0.loom.weight" ? "a loom is no matrix product" : "")
        << t.name;
  LoadedFolder out(dir / "out");
  EXPECT_EQ(out.scalar("model.layers.0.warp.weight_scale_2"),
            out.scalar("model.layers.0.weft.weight_scale_2"));
  EXPECT_THAT(report.warnings, testing::Contains(testing::HasSubstr("read stacks of them")));
}

TEST(AFamilyMore, AnswersWhatIsAskedOfAFamily) {
  const AddedFamily added(kTartan);
  ModelConfig config;
  config.model_types = kTypes;
  ASSERT_TRUE(stack_form(config));
  EXPECT_TRUE(stack_form(config)->transposed && stack_form(config)->interleaved);
  const FuseRules rules({}, kTypes);
  EXPECT_EQ(rules.key("a.warp"), rules.key("a.weft"));
  EXPECT_TRUE(stays_f32("model.selvage.weight", kTypes));
  EXPECT_FALSE(stays_f32("model.selvage.bias", kTypes));
  EXPECT_TRUE(stays_f32("model.layers.0.gating.bias", kTypes));
  EXPECT_FALSE(stays_f32("model.layers.0.warp.bias", kTypes));
  ConfigFacts facts;
  facts.model_types = kTypes;
  EXPECT_THAT(exclude_globs(facts).entries, testing::Contains("*lm*"));
  ASSERT_NE(gguf::find_architecture("tartan"), nullptr);
  EXPECT_EQ(gguf::place_of(kNames, "model.layers.3.warp.weight")->file_name, "blk.3.warp.weight");
}

TEST(AFamily, IsGoneWithTheObjectThatAddedIt) {
  { const AddedFamily added(kTartan); }
  EXPECT_TRUE(families_of(kTypes).empty());
}

}  // namespace nvfp4::added_family_test
