// Experts that are stored one by one become what the model's family reads: stacks.
#include "checkpoint/checkpoints.h"
#include "checkpoint/plan/steps.h"

namespace nvfp4::decoded_test {

const std::string kLayer = "model.layers.0.mlp.experts.";

/// Returns values that NVFP4 represents exactly with any block scales: each block has a 6 and no
/// value between codes.
TestTensor exact_tensor(const std::string& name, std::vector<std::int64_t> shape,
                        bool rows = false) {
  TestTensor t = random_tensor(name, shape);
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(name)));
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (float& v : values) v = kValues[random() % 8] * (random() % 2 == 0 ? 0.25f : -0.25f);
  // Blocks go along K, which is the middle dimension of [experts, K, N], or the last one.
  const auto k = static_cast<std::size_t>(shape[1]), n = static_cast<std::size_t>(shape[2]);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (rows ? i % 16 == 0 : i / n % k % 16 == i % 16) values[i] = 1.5f;
  t.bytes = encode(values, safetensors::DType::bf16);
  return t;
}

/// In a format that has no stacks.
void quantize_one_by_one(const std::filesystem::path& in, const std::filesystem::path& out) {
  quantize_checkpoint(in, out, {"--format", "compressed-tensors"});
}

struct Family {
  const char* config;
  std::int64_t hidden, inner;
  bool rows = false;  ///< [experts, N, K]
};

class StacksAreRestored : public ::testing::TestWithParam<Family> {};

TEST_P(StacksAreRestored, ToNamesShapesAndBitsOfTheSource) {
  const auto [config, hidden, inner, rows] = GetParam();
  const TempDir dir;
  std::vector<std::vector<TestTensor>> shards(2);
  const auto stack = [&, rows = rows](const char* name, std::int64_t k, std::int64_t n) {
    return exact_tensor(kLayer + name, {3, rows ? n : k, rows ? k : n}, rows);
  };
  shards[0].push_back(stack("gate_up_proj", hidden, 2 * inner));
  shards[0].push_back(random_tensor(kLayer + "gate_up_proj_bias", {3, 2 * inner}));
  shards[1].push_back(stack("down_proj", inner, hidden));
  write_model(dir / "source", shards, config);
  for (const char* format : {"modelopt", "compressed-tensors"}) {
    auto options = quantize_options(dir / "source", dir / format, {"--format", format});
    quantize_checkpoint(options);
    const std::string type = config;
    const bool stacked = options.format == "modelopt" &&
                         (type.find("gpt_oss") != type.npos || type.find("llama4") != type.npos);
    ASSERT_TRUE(
        LoadedModel(dir / format)
            .has(kLayer + (stacked ? "gate_up_proj_weight_scale" : "2.gate_proj.weight_scale")));
    const std::string plain = std::string(format) + "-bf16";
    const QuantizeReport report = convert(dir / format, dir / plain, "bf16");
    expect_same_tensors(dir / "source", dir / plain);
    EXPECT_EQ(report.bytes_after, LoadedModel(dir / "source").tensors.empty()
                                      ? 0
                                      : element_count({3, hidden, 3 * inner}) * 2 + 3 * inner * 4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, StacksAreRestored,
    ::testing::Values(
        Family{R"({"model_type": "gpt_oss", "hidden_size": 64})", 64, 48},
        Family{R"({"model_type": "llama4_text", "hidden_size": 64})", 64, 48},
        Family{R"({"model_type": "llama4", "text_config": {"hidden_size": 64}})", 64, 80},
        // More than one chunk of rows.
        Family{R"({"model_type": "gpt_oss", "hidden_size": 1600})", 1600, 1440},
        Family{R"({"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": 64}})", 64, 32},
        Family{R"({"model_type": "openai_privacy_filter", "hidden_size": 64})", 64, 48},
        Family{R"({"model_type": "mistral4", "hidden_size": 64})", 64, 48, true},
        Family{R"({"model_type": "mistral3",
                   "text_config": {"model_type": "mistral4", "hidden_size": 64}})",
               64, 32, true},
        Family{R"({"model_type": "hy_v4", "hidden_size": 1600})", 1600, 1040, true}),
    [](const auto& info) { return "Case" + std::to_string(info.index); });

TEST(Stacks, ExpertsOfSeveralShardsGoToTheFirst) {
  const TempDir dir;
  write_model(dir / "source", {{exact_tensor(kLayer + "gate_up_proj", {3, 64, 96})}},
              R"({"model_type": "gpt_oss", "hidden_size": 64})");
  quantize_one_by_one(dir / "source", dir / "q");
  LoadedFolder model(dir / "q");
  std::vector<std::vector<TestTensor>> shards(2);
  for (const TestTensor& t : model.shards.begin()->second)
    shards[t.spec.name.find(".1.gate") == std::string::npos].push_back(t);
  write_model(dir / "two", shards, read_text(dir / "q" / "config.json"));
  convert(dir / "two", dir / "plain", "bf16");
  expect_same_tensors(dir / "source", dir / "plain");
}

TEST(Stacks, WithTwoExpertsOfOneNumberAreRefused) {
  const TempDir dir;
  write_model(dir / "source", {{exact_tensor(kLayer + "gate_up_proj", {2, 64, 96})}},
              R"({"model_type": "gpt_oss", "hidden_size": 64})");
  quantize_one_by_one(dir / "source", dir / "q");
  LoadedFolder model(dir / "q");
  std::vector<TestTensor>& tensors = model.shards.begin()->second;
  for (std::size_t i = 0, count = tensors.size(); i < count; ++i)
    if (const std::size_t at = tensors[i].spec.name.find(".1."); at != std::string::npos) {
      TestTensor other = tensors[i];
      other.spec.name.replace(at, 3, ".01.");
      tensors.push_back(std::move(other));
    }
  write_model(dir / "two", {tensors}, read_text(dir / "q" / "config.json"));
  expect_error<FormatError>([&] { convert(dir / "two", dir / "plain", "bf16"); },
                            {".01.", "is the same expert as", ".1."});
}

TEST(WeightsInQ8, AreMatricesAndStacksThatAreSplit) {
  struct Case {
    const char* name;
    std::vector<std::int64_t> shape;
    bool splits, fits;
  };
  const Case cases[] = {{"up_proj.weight", {8, 64}, false, true},
                        {"up_proj.weight", {8, 48}, false, false},
                        {"conv1d.weight", {8, 1, 32}, false, false},
                        {"mlp.experts.down_proj", {2, 8, 64}, true, true},
                        {"mlp.experts.gate_up_proj_bias", {2, 64}, true, false}};
  for (const Case& c : cases) {
    checkpoint::LogicalTensor t;
    t.name = c.name;
    t.shape = c.shape;
    EXPECT_EQ(checkpoint::fits_q8_0(t, c.splits), c.fits) << c.name;
  }
}

}  // namespace nvfp4::decoded_test
