// Models in FP32: what is not quantized becomes BF16, but for what loaders keep.
#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/families/select.h"

namespace nvfp4::narrow_test {

using enum safetensors::DType;

std::vector<TestTensor> model_of(safetensors::DType dtype) {
  std::vector<TestTensor> tensors;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight",
                           "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate.weight"})
    tensors.push_back(random_tensor(name, {64, 64}, dtype));
  for (const char* name : {"model.norm.weight", "model.layers.0.mixer.A_log",
                           "model.layers.0.mlp.gate.e_score_correction_bias",
                           "model.layers.0.mlp.gate.bias", "model.layers.0.mlp.up_proj.bias"})
    tensors.push_back(random_tensor(name, {64}, dtype));
  return tensors;
}

Json config_of(const std::filesystem::path& folder) {
  return Json::parse(read_text(folder / "config.json"));
}

std::size_t actions(const QuantizeReport& report, std::string_view action) {
  return static_cast<std::size_t>(
      std::ranges::count(report.tensors, action, &TensorReport::action));
}

TEST(NarrowF32, RestOfAnFp32ModelBecomesBf16) {
  for (const char* format : {"modelopt", "compressed-tensors"}) {
    const TempDir dir;
    write_model(dir / "a", {model_of(f32)},
                R"({"model_type": "llama", "torch_dtype": "float32", "hidden_size": 64})");
    const QuantizeReport report = quantize_checkpoint(dir / "a", dir / "b", {"--format", format});
    EXPECT_EQ(actions(report, "quantized"), 1u);
    EXPECT_EQ(actions(report, "cast"), 5u);
    EXPECT_EQ(actions(report, "kept"), 3u);
    const LoadedModel a(dir / "a"), b(dir / "b");
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                             "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.up_proj.bias"}) {
      EXPECT_EQ(b.at(name).dtype, bf16) << name;
      EXPECT_EQ(b.at(name).shape, a.at(name).shape) << name;
      std::vector<float> values(a.at(name).bytes.size() / 4);
      std::memcpy(values.data(), a.at(name).bytes.data(), a.at(name).bytes.size());
      EXPECT_EQ(b.at(name).bytes, encode(values, bf16)) << name;
    }
    for (const char* name :
         {"model.layers.0.mixer.A_log", "model.layers.0.mlp.gate.e_score_correction_bias",
          "model.layers.0.mlp.gate.bias"})
      EXPECT_EQ(b.at(name).bytes, a.at(name).bytes) << name;
    EXPECT_EQ(config_of(dir / "b")["torch_dtype"], "bfloat16");
    for (const Finding& f : verify_checkpoint(verify_options(dir / "b", dir / "a")).findings)
      EXPECT_NE(f.severity, Severity::error) << f.text;
  }
}

/// Transformers' names, and those of checkpoints.
TEST(NarrowF32, NamesThatStayDependOnTheFamily) {
  for (const table::Row& row : table::rows_of("narrow.txt")) {
    std::vector<std::string> types = {row.column(0)};
    if (types[0] == "-") types.clear();
    EXPECT_EQ(checkpoint::stays_f32(row.name, types), row.column(1) == "stays")
        << row.name << " of " << row.column(0);
  }
}

}  // namespace nvfp4::narrow_test
