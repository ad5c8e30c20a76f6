#include "checkpoint/checkpoints.h"

/// Quantizations that are not known here, and corrections of a weight that no form has.
namespace nvfp4::unknown_forms_test {

using enum safetensors::DType;

/// Tables of known use are copied, others are copied and named.
TEST(UnknownForm, IntegersOfNoWeightAreCopied) {
  const TempDir dir;
  std::vector<TestTensor> tensors = {random_tensor("model.layers.0.mlp.up_proj.weight", {64, 64})};
  const auto add = [&](const std::string& name, safetensors::DType dtype,
                       std::vector<std::int64_t> shape) {
    const std::int64_t bytes = element_count(shape) * safetensors::dtype_bits(dtype) / 8;
    tensors.push_back({{name, dtype, std::move(shape)}, random_bytes(bytes, name, 0, 255)});
  };
  const std::string known = "model.layers.0.mlp.gate.tid2eid", other = "model.token_map";
  add(known, i32, {96, 2});
  add("spiece_model", u8, {100});
  add("model.layers.0.self_attn.bias", boolean, {1, 1, 8, 8});
  for (const bool named : {false, true}) {
    if (named) add(other, i32, {96, 2});
    fs::remove_all(dir / "in");
    fs::remove_all(dir / "out");
    write_model(dir / "in", {tensors}, "{}");
    const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out");
    const auto& lines = report.warnings;
    EXPECT_EQ(std::ranges::count_if(
                  lines, [&](const auto& line) { return line.find(other) != line.npos; }),
              named ? 1 : 0);
    EXPECT_TRUE(std::ranges::none_of(
        lines, [&](const auto& line) { return line.find(known) != line.npos; }));
    const LoadedModel in(dir / "in"), out(dir / "out");
    for (const TestTensor& t : tensors) {
      if (t.spec.dtype == bf16) continue;
      EXPECT_EQ(out.at(t.spec.name).bytes, in.at(t.spec.name).bytes) << t.spec.name;
    }
  }
}

TEST(UnknownForm, IsNotComparedWithTheSource) {
  const TempDir dir;
  write_tiny_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "a");
  const std::string q = "model.layers.0.self_attn.q_proj";
  auto verify = verify_options(dir / "b", dir / "source");
  for (const bool corrected : {false, true}) {
    LoadedFolder model(dir / "a");
    std::ranges::reverse(model.at(q + ".weight").bytes);
    if (corrected)
      model.shard_of(q + ".weight").push_back(random_tensor(q + ".pre_quant_scale", {64}));
    model.write(dir / "b");
    const auto findings = verify_checkpoint(verify).findings;
    EXPECT_EQ(std::ranges::count(findings, "far-from-source", &Finding::code), corrected ? 0 : 1);
  }
}

}  // namespace nvfp4::unknown_forms_test
