#include "checkpoint/checkpoints.h"

/// Quantized weights of a source of which a part is gone, or has another form: nothing of them is
/// copied as if it were a table of bytes.
namespace nvfp4::lost_parts_test {

namespace fs = std::filesystem;
using enum safetensors::DType;

using Tensors = std::vector<TestTensor>;

const std::string kStack = "model.layers.0.mlp.experts.gate_up_proj";
const std::string kLinear = "model.layers.0.self_attn.o_proj";

VerifyReport verified(const fs::path& path) {
  VerifyOptions options;
  options.path = path;
  return verify_checkpoint(options);
}

/// No output comes out, and nothing of it is left.
void expect_refused(const TempDir& dir, bool force, const std::vector<std::string>& outputs,
                    std::initializer_list<std::string_view> words) {
  for (const std::string& to : outputs) {
    expect_error<FormatError>([&] { quantize_or_convert(dir / "in", dir / "out", to, force); },
                              words);
    EXPECT_FALSE(fs::exists(dir / "out")) << to;
  }
}

/// GPT-OSS's experts, and a matrix.
Tensors gpt_oss() {
  Tensors tensors;
  append(tensors, mxfp4_weight(kStack + "_blocks", kStack + "_scales", {2, 64, 2, 16}, {2, 64, 2},
                               110, 120));
  tensors.push_back(random_tensor(kLinear + ".weight", {64, 64}));
  return tensors;
}

struct Fault {
  std::string code;
  std::function<void(Tensors&)> plant;
};

auto dtype(std::size_t at, safetensors::DType dtype) {
  return [=](Tensors& t) { t[at].spec.dtype = dtype; };
}

auto shape(std::size_t at, std::vector<std::int64_t> shape) {
  return [=](Tensors& t) {
    t[at].spec.shape = shape;
    t[at].bytes.resize(static_cast<std::size_t>(element_count(shape)));
  };
}

TEST(LostParts, OfGptOssExpertsAreAnErrorThatNamesThem) {
  const TempDir dir;
  const std::vector<Fault> faults = {
      {"missing-scale", [](Tensors& t) { t.erase(t.begin() + 1); }},
      {"wrong-dtype", dtype(0, i8)},
      {"wrong-dtype", dtype(0, f8_e5m2)},
      {"wrong-dtype", dtype(1, i8)},
      {"wrong-dtype", dtype(1, f8_e4m3)},
      {"wrong-shape", shape(0, {2 * 64 * 2 * 16})},
      {"wrong-shape", shape(0, {2, 64, 2, 15})},
      {"wrong-shape", shape(0, {2, 64, 32})},
      {"wrong-shape", shape(0, {0})},
      {"wrong-shape", shape(1, {2, 64, 1})},
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    Tensors tensors = gpt_oss();
    faults[i].plant(tensors);
    fs::remove_all(dir / "in");
    write_model(dir / "in", {tensors}, R"({"model_type": "gpt_oss"})");
    EXPECT_EQ(codes_of(verified(dir / "in")).count(faults[i].code), 1U)
        << text_of(verified(dir / "in"));
    expect_refused(dir, /*force=*/true, {"quantize", "bf16", "modelopt", "compressed-tensors"},
                   {"in/model.safetensors", "'" + kStack});
  }
}

/// Of compressed-tensors' MXFP4 and DeepSeek-V4's: codes or exponents.
TEST(LostParts, OfPackedMatricesAreAnError) {
  const TempDir dir;
  const std::string lost = "model.layers.0.mlp.up_proj";
  const PackedWeight packed =
      mxfp4_weight(lost + ".weight_packed", lost + ".weight_scale", {64, 32}, {64, 2}, 110, 120);
  const PackedWeight native = mxfp4_matrix(lost, 64, 64, 110, 120);
  for (const auto& [weight, kept] :
       {std::pair(packed, 0), std::pair(native, 0), std::pair(native, 1)}) {
    SCOPED_TRACE(weight.tensors[static_cast<std::size_t>(kept)].spec.name);
    Tensors tensors = {random_tensor(kLinear + ".weight", {64, 64}),
                       weight.tensors[static_cast<std::size_t>(kept)]};
    append(tensors, mxfp4_matrix("model.layers.0.mlp.gate_proj", 64, 64, 110, 120));
    fs::remove_all(dir / "in");
    write_model(dir / "in", {tensors}, R"({"model_type": "llama"})");
    EXPECT_EQ(codes_of(verified(dir / "in")).count(kept == 0 ? "missing-scale" : "orphan-scale"),
              1U)
        << text_of(verified(dir / "in"));
    expect_refused(dir, /*force=*/false, {"quantize", "bf16"},
                   {"in/model.safetensors", "'" + lost});
  }
}

/// Scales whose codes are gone.
TEST(LostParts, CodesAreMissedUnlessForced) {
  const TempDir dir;
  const std::string module = "model.layers.0.self_attn.k_proj";
  for (const std::string& orphan :
       {kStack + "_scales", kStack + "_weight_scale", kStack + "_weight_scale_2",
        module + ".weight_scale", module + ".weight_scale_2", module + ".weight_scale_inv",
        module + ".weight_global_scale", module + ".input_scale", module + ".input_global_scale"}) {
    SCOPED_TRACE(orphan);
    Tensors tensors = {random_tensor(kLinear + ".weight", {64, 64}), random_tensor(orphan, {64})};
    fs::remove_all(dir / "in");
    write_model(dir / "in", {tensors}, R"({"model_type": "llama"})");
    EXPECT_EQ(codes_of(verified(dir / "in")).count("orphan-scale"), 1U);
    expect_refused(dir, /*force=*/false, {"quantize", "bf16"},
                   {"orphan-scale", "'" + orphan + "'", "--allow broken-scales"});
    for (const char* to : {"quantize", "bf16"}) {
      const auto warnings = quantize_or_convert(dir / "in", dir / "out", to, true).warnings;
      ASSERT_FALSE(warnings.empty());
      EXPECT_NE(warnings[0].find("orphan-scale"), std::string::npos) << warnings[0];
      fs::remove_all(dir / "out");
    }
  }
}

/// Names alone make no scale: a module's own tensor, or one of an FP8 weight with several.
TEST(LostParts, AreNoneOfOtherTensors) {
  const TempDir dir;
  Tensors tensors = {random_tensor(kLinear + ".weight", {64, 64}),
                     random_tensor("model.layers.0.attn.k_scales", {64}),
                     random_tensor("model.layers.0.conv_blocks", {64})};
  write_model(dir / "in", {tensors}, R"({"model_type": "llama"})");
  EXPECT_TRUE(quantize_or_convert(dir / "in", dir / "out", "quantize", false).warnings.empty());
}

}  // namespace nvfp4::lost_parts_test
