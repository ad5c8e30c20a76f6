// Adding a format takes one table. A test format is written, read, verified, converted and repaired
// by its table alone.
#include "checkpoint/checkpoints.h"
#include "checkpoint/formats/excludes.h"
#include "checkpoint/formats/format.h"

namespace nvfp4::added_format_test {

using namespace checkpoint;

extern const CheckpointFormat kPlaid;

bool claims(const TensorTable& table, const StoredTensor& /*codes*/, const std::string& module) {
  return static_cast<bool>(table.find(module + ".plaid_scales"));
}

const WeightNames kPlaidNames = {.format = &kPlaid,
                                 .codes = ".plaid_codes",
                                 .scales = ".plaid_scales",
                                 .global = ".plaid_divisor",
                                 .input = ".plaid_input_divisor",
                                 .divisors = true,
                                 .arrangement = {.high_nibble_first = true},
                                 .claims = claims};
constexpr const WeightNames* kReads[] = {&kPlaidNames};
constexpr std::string_view kLoaders[] = {"sglang"};

const CheckpointFormat kPlaid = {
    .name = "plaid",
    .reads = kReads,
    .loaders = kLoaders,
    .is_repaired = true,
    .names = &kPlaidNames,
    .note = "for nobody",
    .quantization_config = [](const ConfigFacts& facts) {
      return Json{{"quant_method", "plaid"}, {"ignore", exclude_globs(facts).entries}};
    }};

class AFormatMore : public testing::Test {
 protected:
  AFormatMore() { write_tiny_llama(dir_ / "in"); }
  void quantize(const std::string& format) {
    quantize_checkpoint(dir_ / "in", dir_ / format, {"--format", format});
  }
  VerifyReport verified(const char* name) const {
    return verify_checkpoint(verify_options(dir_ / name));
  }
  const TempDir dir_;
  const AddedFormat added_{kPlaid};
};

TEST_F(AFormatMore, IsOfferedWrittenAndRead) {
  const std::vector<FormatInfo> formats = output_formats();
  EXPECT_TRUE(std::ranges::any_of(formats, [](const FormatInfo& f) {
    return f.name == "plaid" && f.note == "for nobody" && f.extension.empty();
  }));
  EXPECT_THAT(conversion_targets(), testing::Contains("plaid"));
  quantize("plaid");
  quantize("modelopt");
  EXPECT_TRUE(LoadedModel(dir_ / "plaid").has("model.layers.0.mlp.up_proj.plaid_codes"));
  InspectOptions inspect;
  inspect.path = dir_ / "plaid";
  EXPECT_EQ(inspect_checkpoint(inspect).format, "plaid");
  const CompareReport same = compare_checkpoints(dir_ / "plaid", dir_ / "modelopt");
  EXPECT_TRUE(same.only_in_a.empty() && same.only_in_b.empty());
  EXPECT_LT(same.relative_error, 1e-6);  // a divisor is not exactly its multiplier's reciprocal
}

TEST_F(AFormatMore, IsJudgedByItsOwnRules) {
  quantize("plaid");
  VerifyReport report = verified("plaid");
  EXPECT_EQ(report.format, "plaid");
  EXPECT_FALSE(report.broken()) << text_of(report);
  for (const LoaderVerdict& v : report.loaders)
    EXPECT_EQ(is_bad(v.verdict), v.loader != "sglang") << v.loader << v.text;
  LoadedFolder model(dir_ / "plaid");
  model.config["quantization_config"]["quant_method"] = "tartan";
  model.write(dir_ / "declared");
  report = verified("declared");
  EXPECT_TRUE(codes_of(report).contains("declared-format")) << text_of(report);
}

TEST_F(AFormatMore, IsConvertedThereAndBackAndRepaired) {
  quantize("modelopt");
  convert(dir_ / "modelopt", dir_ / "plaid", "plaid");
  convert(dir_ / "plaid", dir_ / "back", "modelopt");
  expect_same_tensors(dir_ / "modelopt", dir_ / "back");
  LoadedFolder broken(dir_ / "plaid");
  const std::string scale = "model.layers.0.mlp.down_proj.plaid_divisor";
  broken.set_scalar(scale, 1 / broken.scalar(scale));
  broken.write(dir_ / "broken");
  EXPECT_FALSE(
      repair_checkpoint(repair_options(dir_ / "broken", dir_ / "repaired")).after.broken());
  EXPECT_TRUE(LoadedModel(dir_ / "repaired").has(scale));
}

TEST(AFormat, IsGoneWithTheObjectThatAddedIt) {
  { const AddedFormat added(kPlaid); }
  expect_error<ValueError>([] { checkpoint_format("plaid"); }, {"plaid", "modelopt"});
}

}  // namespace nvfp4::added_format_test
