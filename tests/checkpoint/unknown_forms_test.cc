#include "checkpoint/checkpoints.h"

/// Quantizations that are not known here, and corrections of a weight that no form has.
namespace nvfp4::unknown_forms_test {

namespace fs = std::filesystem;
using enum safetensors::DType;

/// Nothing is copied that would mean something else in the output.
TEST(UnknownForm, IsRefusedByNameWhoeverReadsIt) {
  const TempDir dir;
  write_tiny_llama(dir / "plain");
  quantize_checkpoint(quantize_options(dir / "plain", dir / "a"));
  const std::string q = "model.layers.0.self_attn.q_proj";
  const auto tensor = [](const std::string& name, safetensors::DType dtype,
                         std::vector<std::int64_t> shape) {
    const std::int64_t bits = element_count(shape) * safetensors::dtype_bits(dtype);
    return TestTensor{{name, dtype, std::move(shape)},
                      std::vector<std::byte>(static_cast<std::size_t>(bits / 8))};
  };
  const auto marker = [](const std::string& module, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return TestTensor{{module + ".comfy_quant", u8, {static_cast<std::int64_t>(text.size())}},
                      {bytes.begin(), bytes.end()}};
  };
  const std::string m = "other", stack = "model.layers.0.mlp.experts.gate_up_proj";
  const std::vector<std::pair<std::string, std::vector<TestTensor>>> cases = {
      {q + ".pre_quant_scale", {tensor(q + ".pre_quant_scale", bf16, {64})}},
      {q + ".svdquant_lora_a", {tensor(q + ".svdquant_lora_a", bf16, {32, 64})}},
      {q + ".svdquant_lora_b", {tensor(q + ".svdquant_lora_b", bf16, {64, 32})}},
      {m + ".weight_packed",
       {tensor(m + ".weight_packed", i32, {64, 8}), tensor(m + ".weight_scale", bf16, {64, 1}),
        tensor(m + ".weight_shape", i64, {2})}},
      {m + ".weight",
       {tensor(m + ".weight", i8, {64, 64}), tensor(m + ".weight_scale", f32, {64, 1})}},
      {m + ".weight",
       {tensor(m + ".weight", f8_e5m2, {64, 64}), tensor(m + ".weight_scale", f32, {})}},
      {m + ".weight",
       {tensor(m + ".weight", f8_e4m3, {64, 64}), tensor(m + ".scale_weight", f32, {})}},
      {m + ".weight",
       {tensor(m + ".weight", u8, {2048, 1}), tensor(m + ".weight.absmax", f32, {64})}},
      {m + ".qweight", {tensor(m + ".qweight", i32, {8, 64}), tensor(m + ".scales", f16, {1, 64})}},
      {stack, {tensor(stack, f8_e4m3, {2, 64, 64}), tensor(stack + "_scale_inv", f32, {2, 1, 1})}},
      {stack + "_packed",
       {tensor(stack + "_packed", u8, {2, 64, 32}), tensor(stack + "_scale", f8_e4m3, {2, 64, 4}),
        tensor(stack + "_global_scale", f32, {2, 1})}},
      {m + ".weight_packed",  // AutoRound's E5M3
       {tensor(m + ".weight_packed", u8, {64, 32}), tensor(m + ".weight_scale", u8, {64, 4})}},
      {m + ".weight",  // ComfyUI's MXFP8, whose exponents are in tiles
       {tensor(m + ".weight", f8_e4m3, {128, 128}), tensor(m + ".weight_scale", u8, {128, 4}),
        marker(m, R"({"format": "mxfp8"})")}},
      {m + ".qweight",
       {tensor(m + ".qweight", i8, {64, 32}), tensor(m + ".wscales", f8_e4m3, {4, 64}),
        tensor(m + ".wtscale", f32, {1}), tensor(m + ".proj_down", bf16, {64, 32})}},
      {m + ".qweight",
       {tensor(m + ".qweight", i32, {8, 64}), tensor(m + ".qzeros", i32, {2, 8}),
        tensor(m + ".g_idx", i32, {64})}},
      {m + ".weight",
       {tensor(m + ".weight", u32, {64, 8}), tensor(m + ".scales", bf16, {64, 1}),
        tensor(m + ".biases", bf16, {64, 1})}},
      {m + ".weight", {tensor(m + ".weight", u32, {64, 8}), tensor(m + ".scales", u8, {64, 4})}},
      {m + ".weight", {tensor(m + ".weight", i8, {64, 64})}},
      {m + ".weight", {tensor(m + ".weight", f6_e2m3, {64, 64})}},
      {m + ".weight", {tensor(m + ".weight", f4, {64, 64})}},
      {m + ".W_q", {tensor(m + ".W_q", u8, {32, 64}), tensor(m + ".zero", f16, {64, 1})}},
      {m + ".encoded_exponent", {tensor(m + ".encoded_exponent", u8, {640})}},
      {m + ".bitmask", {tensor(m + ".bitmask", u8, {64, 8}), tensor(m + ".compressed", bf16, {9})}},
      // Scales under names that no form reads: optimum-quanto, Marlin, FP8 of other programs.
      {m + ".weight._data",
       {tensor(m + ".weight._data", f8_e4m3, {64, 64}), tensor(m + ".weight._scale", bf16, {64})}},
      {m + ".weight._data._data",
       {tensor(m + ".weight._data._data", u8, {32, 64}),
        tensor(m + ".weight._scale", bf16, {64, 1})}},
      {m + ".B", {tensor(m + ".B", i32, {4, 128}), tensor(m + ".s", f16, {2, 64})}},
      {m + ".qdata", {tensor(m + ".qdata", i8, {4096}), tensor(m + ".qscale", bf16, {64})}},
      {m + ".weight",
       {tensor(m + ".weight", f8_e4m3, {64, 64}), tensor(m + ".weight_descale", f32, {})}},
      {m + ".weight", {tensor(m + ".weight", f8_e4m3, {64, 64}), tensor(m + ".amax", f32, {})}},
  };
  for (const auto& [name, tensors] : cases) {
    SCOPED_TRACE(name);
    LoadedFolder model(dir / "a");
    append(model.shards.begin()->second, {tensors, {}});
    fs::remove_all(dir / "bad");
    model.write(dir / "bad");
    for (const std::string& to : conversion_targets()) {
      const fs::path out = dir / (to == "gguf" ? "out.gguf" : "out");
      expect_error<UnsupportedError>([&] { convert(dir / "bad", out, to); },
                                     {"'" + name + "'", "the input seems to be quantized: "});
      EXPECT_FALSE(fs::exists(out));
    }
    RepairOptions repair;
    repair.input = dir / "bad";
    repair.output = dir / "out";
    expect_error<UnsupportedError>([&] { repair_checkpoint(repair); }, {"'" + name + "'"});
    LoadedFolder source(dir / "plain");
    append(source.shards.begin()->second, {tensors, {}});
    fs::remove_all(dir / "source");
    source.write(dir / "source");
    expect_error<UnsupportedError>(
        [&] { quantize_checkpoint(quantize_options(dir / "source", dir / "out")); },
        {"'" + name + "'"});
    VerifyOptions verify;
    verify.path = dir / "bad";
    verify.source = dir / "plain";
    const VerifyReport report = verify_checkpoint(verify);
    for (const Finding& f : report.findings)
      EXPECT_TRUE(f.code == "unknown-form" || f.severity != Severity::error) << f.code << f.text;
    EXPECT_EQ(std::ranges::count(report.findings, "unknown-form", &Finding::code), 1);
  }
}

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
    const QuantizeReport report = quantize_checkpoint(quantize_options(dir / "in", dir / "out"));
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
  quantize_checkpoint(quantize_options(dir / "source", dir / "a"));
  const std::string q = "model.layers.0.self_attn.q_proj";
  VerifyOptions verify;
  verify.path = dir / "b";
  verify.source = dir / "source";
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
