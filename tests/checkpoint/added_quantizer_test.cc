// Adding a method for checkpoints takes one row with the statistics that it needs. A test method is
// offered, supplied with them or refused by its row alone.
#include "checkpoint/statistics_file.h"
#include "quantizers/method.h"
#include "testing.h"

namespace nvfp4::added_quantizer_test {

class AQuantizerMore : public testing::Test {
 protected:
  AQuantizerMore() {
    write_tiny_llama(dir_ / "in");
    write_statistics(statistics_, llama_statistics());
  }
  QuantizeReport quantize_by(const std::string& method, bool with_statistics) {
    auto options = quantize_options(dir_ / "in", dir_ / method, {"--method", method});
    if (with_statistics) options.statistics = statistics_;
    return quantize_checkpoint(options);
  }
  std::string weights_of(const std::string& method) {
    return read_text(dir_ / method / "model.safetensors");
  }
  const TempDir dir_;
  const std::filesystem::path statistics_ = dir_ / "stats.safetensors";
};

TEST_F(AQuantizerMore, IsOfferedAndSuppliedByItsRow) {
  const AddedMethod plain({"plaid", Quantizer::four_over_six});
  const AddedMethod informed({"tartan", Quantizer::mse, Needs::diagonal});
  EXPECT_THAT(method_names(), testing::Contains("plaid"));
  EXPECT_THAT(method_names(), testing::Contains("tartan"));
  for (const auto& [made_up, own] : {std::pair("plaid", "four_over_six"), {"tartan", "weighted"}}) {
    const bool informed_by = std::string(own) == "weighted";
    EXPECT_EQ(quantize_by(made_up, informed_by).method, made_up);
    quantize_by(own, informed_by);
    const LoadedModel a(dir_ / made_up), b(dir_ / own);
    for (const char* tensor : {".weight", ".weight_scale", ".weight_scale_2"}) {
      const std::string name = std::string("model.layers.0.mlp.down_proj") + tensor;
      EXPECT_EQ(a.at(name).bytes, b.at(name).bytes) << name;
    }
    const auto config = nlohmann::json::parse(read_text(dir_ / made_up / "config.json"));
    EXPECT_EQ(config["nvfp4_cpp"]["scale_search"], made_up);
  }
}

TEST_F(AQuantizerMore, IsRefusedWithoutWhatItNeeds) {
  const AddedMethod diagonal({"tartan", Quantizer::mse, Needs::diagonal});
  const AddedMethod gram({"twill", Quantizer::mse, Needs::gram});
  expect_error<ValueError>([&] { quantize_by("tartan", false); },
                           {"tartan", "mean square of each input channel", "--statistics"});
  expect_error<ValueError>([&] { quantize_by("twill", true); }, {"twill", "Gram matrix"});
}

TEST(AQuantizer, IsGoneWithTheObjectThatAddedIt) {
  { const AddedMethod added({"tartan", Quantizer::max}); }
  expect_error<ValueError>([] { method_from_name("tartan"); }, {"tartan", "gptq"});
}

}  // namespace nvfp4::added_quantizer_test
