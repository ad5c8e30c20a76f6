// A value that an output cannot hold is an error, or at least a warning.
#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

namespace nvfp4::lost_test {

using safetensors::DType;

const std::string kA = "model.layers.0.self_attn.o_proj", kZ = "model.layers.0.mlp.down_proj";

/// One NVFP4 weight, and `more` beside it.
void write_mixed(const fs::path& folder, const PackedWeight& more,
                 const std::string& format = "modelopt") {
  write_model(folder / "plain", {{random_tensor(kA + ".weight", {64, 128})}}, kLlamaConfig);
  quantize_checkpoint(folder / "plain", folder / "nvfp4", {"--format", format});
  LoadedFolder model(folder / "nvfp4");
  append(model.shards.begin()->second, more);
  model.write(folder / "mixed");
}

struct Lost : FolderTest {};

TEST_F(Lost, UndeclarableCacheTypeIsAWarning) {
  write_mixed(dir.path(), {});
  for (const std::string type : {"FP8", "NVFP4"}) {
    LoadedFolder model(dir / "mixed");
    model.config.erase("quantization_config");
    model.hf_quant["quantization"]["kv_cache_quant_algo"] = type;
    model.write(dir / type);
    for (const std::string to : {"modelopt", "compressed-tensors", "comfyui"}) {
      const fs::path out = dir / (type + to);
      const bool kept = to == "modelopt" || (to == "compressed-tensors" && type == "FP8");
      EXPECT_EQ(says(convert(dir / type, out, to).warnings, "cached in " + type), !kept)
          << type << to;
    }
    convert(dir / (type + "modelopt"), dir / (type + "again"), "modelopt");
    EXPECT_EQ(LoadedFolder(dir / (type + "again")).hf_quant["quantization"]["kv_cache_quant_algo"],
              type);
  }
}

/// A block as large as its matrix is one scale, whatever its shape.
TEST_F(Lost, OneBlockIsDeclaredAsOneScale) {
  write_mixed(dir.path(), fp8_blocks(kZ, 128, 128));
  convert(dir / "mixed", dir / "out", "modelopt");
  EXPECT_EQ(
      LoadedFolder(dir / "out").hf_quant["quantization"]["quantized_layers"][kZ]["quant_algo"],
      "FP8");
}

TEST_F(Lost, InputScalesOfFp8AreTakenOrNamed) {
  struct Names {
    const char *scale, *input;
  };
  for (const Names names : {Names{".weight_scale", ".input_scale"},
                            {".weight_scale_inv", ".input_scale"},
                            {".weight_scale_inv", ".activation_scale"},
                            {".weight_scale", ".activation_scale"},
                            {".weight_scale", ".act_scale"},
                            {".weight_scale", ".scale_input"},
                            {".qscale_weight", ".qscale_act"}}) {
    SCOPED_TRACE(names.input);
    const TempDir dir;
    PackedWeight weight = fp8_weight(kZ, 64, 128, names.scale, {}, 64, 128);
    weight.tensors.push_back({{kZ + names.input, DType::f32, {}}, encode({0.5f}, DType::f32)});
    write_model(dir / "a", {weight.tensors}, kLlamaConfig);
    for (const std::string to : {"w4a4", "w4a16", "bf16"}) {
      auto options = convert_options(dir / "a", dir / to, to == "bf16" ? to : "modelopt");
      if (to == "w4a16") options.scheme = Scheme::w4a16;
      EXPECT_EQ(says(convert_checkpoint(options).warnings,
                     "the input scales of 1 FP8 weights are left out: " + kZ),
                to != "w4a4");
      const LoadedModel out(dir / to);
      EXPECT_EQ(out.tensors.size(), to == "w4a4" ? 4u : to == "w4a16" ? 3u : 1u);
      if (to == "w4a4") {
        EXPECT_EQ(out.scalar(kZ + ".input_scale"), 0.5f * 448 / 2688);
      } else if (to == "bf16") {
        EXPECT_EQ(out.at(kZ + ".weight").bytes, encode(weight.values, DType::bf16));
      }
    }
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
      EXPECT_EQ(says(quantize_checkpoint(dir / "a", dir / "q" / std::string(scheme_name(scheme)),
                                         {"--scheme", scheme})
                         .warnings,
                     "the input scales of 1 FP8 weights are left out: " + kZ),
                scheme == Scheme::w4a16);
    }
    EXPECT_EQ(
        LoadedModel(dir / "q" / std::string(scheme_name(Scheme::w4a4))).scalar(kZ + ".input_scale"),
        0.5f * 448 / 2688);
    write_text(dir / "amax.json", R"({"*": 3.0})");
    convert_checkpoint(
        convert_options(dir / "a", dir / "given", "modelopt", {"--input-amax", dir / "amax.json"}));
    EXPECT_EQ(LoadedModel(dir / "given").scalar(kZ + ".input_scale"), 3.0f / 2688);
  }
}

TEST(LostBeside, QuantizedWeightsIsNamed) {
  for (const char* name :
       {".input_scale_ub", ".input_scale_inv", ".input_amax", ".weight_amax", ".output_scale",
        ".weight_zero_point", ".input_zero_point", ".weight_shape", ".input_quantizer._amax"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    PackedWeight weight = fp8_weight(kZ, 64, 128, ".weight_scale", {}, 64, 128);
    weight.tensors.push_back({{kZ + name, DType::f32, {1}}, encode({0.0f}, DType::f32)});
    write_model(dir / "a", {weight.tensors}, kLlamaConfig);
    for (const std::string to : {"modelopt", "bf16"}) {
      EXPECT_TRUE(says(
          convert(dir / "a", dir / to, to).warnings,
          "1 tensors beside quantized weights are left out, no output has them: " + kZ + name));
      EXPECT_FALSE(LoadedModel(dir / to).has(kZ + name));
    }
  }
}

/// Under the name that the formats have for it, beside FP8 that stays.
TEST_F(Lost, InputScalesOfKeptFp8AreRenamed) {
  PackedWeight weight = fp8_weight(kZ, 64, 128, ".qscale_weight", {}, 64, 128);
  weight.tensors.push_back({{kZ + ".qscale_act", DType::f32, {}}, encode({0.5f}, DType::f32)});
  write_mixed(dir.path(), weight);
  convert(dir / "mixed", dir / "out", "compressed-tensors");
  const LoadedModel out(dir / "out");
  EXPECT_EQ(out.scalar(kZ + ".input_scale"), 0.5f);
  EXPECT_FALSE(out.has(kZ + ".qscale_act"));
}

TEST(LostBeside, FusedNvfp4Fp8IsNamed) {
  const std::string layer = "model.layers.0.mlp.", gate = layer + "gate_proj",
                    up = layer + "up_proj";
  const TempDir dir;
  write_model(dir / "plain", {{random_tensor(gate + ".weight", {64, 128})}}, kLlamaConfig);
  quantize_checkpoint(dir / "plain", dir / "nvfp4");
  for (const char* name : {"up_proj", "down_proj"}) {
    LoadedFolder model(dir / "nvfp4");
    append(model.shards.begin()->second,
           fp8_weight(layer + name, 64, 128, ".weight_scale", {}, 64, 128));
    model.write(dir / name);
    for (const std::string to : {"modelopt", "compressed-tensors"})
      EXPECT_EQ(says(convert(dir / name, dir / (name + to), to).warnings,
                     up + " is FP8 but " + gate + " is NVFP4: loaders that fuse them refuse that"),
                up == layer + name);
  }
}

/// A fault is no reason to keep the whole checkpoint from its repair.
TEST_F(Lost, RepairDequantizesWhatItsFormCannotHold) {
  write_mixed(dir.path(), fp8_blocks(kZ, 256, 128));
  const RepairReport report = repair_checkpoint(repair_options(dir / "mixed", dir / "out"));
  EXPECT_TRUE(says(report.written.warnings, "1 FP8 weights become BF16"));
  convert(dir / "mixed", dir / "bf16", "bf16");
  EXPECT_EQ(LoadedModel(dir / "out").at(kZ + ".weight").bytes,
            LoadedModel(dir / "bf16").at(kZ + ".weight").bytes);
}

/// Also where no weight is NVFP4 any more until it is quantized again.
TEST_F(Lost, RepairLeavesFp8AsItIs) {
  const PackedWeight fp8 = fp8_weight(kZ, 64, 128, ".weight_scale", {64, 1}, 1, 128);
  write_mixed(dir.path(), fp8, "compressed-tensors");
  LoadedFolder source(dir / "plain");
  source.shards.begin()->second.push_back(
      {{kZ + ".weight", DType::f32, {64, 128}}, encode(fp8.values, DType::f32)});
  source.write(dir / "source");
  LoadedFolder model(dir / "mixed");
  model.at(kA + ".weight_scale").bytes[3] = std::byte{0x7F};
  model.write(dir / "bad");
  repair_checkpoint(repair_options(dir / "bad", dir / "out", dir / "source"));
  const LoadedModel out(dir / "out");
  EXPECT_EQ(out.at(kZ + ".weight").dtype, DType::f8_e4m3);
  EXPECT_EQ(out.at(kZ + ".weight").bytes, fp8.tensors[0].bytes);
  EXPECT_EQ(out.at(kA + ".weight_packed").bytes,
            LoadedModel(dir / "nvfp4").at(kA + ".weight_packed").bytes);
}

TEST_F(Lost, Fp8StaysUnlessTheFormatCannotHoldIt) {
  const table::Model mixed("mixed");
  ConvertOptions options;
  options.input = mixed.path;
  for (const bool dry_run : {true, false})
    for (const bool decode : {false, true})
      for (const std::string to : {"compressed-tensors", "comfyui"}) {
        options.to = to;
        options.output = mixed.dir / (to + (decode ? "-decoded" : ""));
        options.allow.decode = decode;
        options.dry_run = dry_run;
        const bool stays = to != "comfyui";
        if (!stays && !decode) {
          expect_error<UnsupportedError>([&] { convert_checkpoint(options); },
                                         {"model.layers.0.self_attn.k_proj.weight", "FP8",
                                          "comfyui cannot hold", "--allow decode"});
          EXPECT_FALSE(fs::exists(options.output));
          continue;
        }
        const auto warnings = convert_checkpoint(options).warnings;
        const auto about = std::ranges::find_if(warnings, [](const std::string& w) {
          return w.starts_with("8 FP8 weights become BF16, comfyui") &&
                 w.ends_with("model.layers.0.self_attn.k_proj, ...");
        });
        EXPECT_EQ(about == warnings.end(), stays) << testing::PrintToString(warnings);
      }
}

/// A scale that makes NaN of every weight under it is no NaN code.
TEST_F(Lost, NaNScalesAreNotCountedAsCodes) {
  for (const char* scale : {"nan", "inf"})
    for (const bool codes : {false, true}) {
      SCOPED_TRACE(scale);
      const table::Model model(
          "empty", fmt::format("fp8 m 128x128 .weight_scale_inv 1x1 128x128; byte m.weight 20 00; "
                               "f32 m.weight_scale_inv {}{}",
                               scale, codes ? "; byte m.weight 0 FF; byte m.weight 500 FF" : ""));
      auto quantize = quantize_options(model.path, model.dir / "out", {"--allow", "broken-scales"});
      if (scale == std::string("nan"))
        expect_error<FormatError>([&] { quantize_checkpoint(quantize); },
                                  {codes ? "code-nan" : "scale-nan", "must be finite"});
      quantize.ignore = {"*"};
      for (const bool decodes : {false, true}) {
        fs::remove_all(model.dir / "out");
        const QuantizeReport report = decodes ? convert(model.path, model.dir / "out", "bf16", true)
                                              : quantize_checkpoint(quantize);
        EXPECT_TRUE(says(report.warnings, "scale-nan"));
        EXPECT_EQ(says(report.warnings, "code-nan"), codes);
        EXPECT_EQ(says(report.warnings, "2 codes are NaN"), codes);
      }
    }
}

/// Without any scales, the codes are the values.
TEST_F(Lost, Fp8WithoutScalesIsItsValues) {
  const table::Model model("empty",
                           "fp8 a 128x128 .weight_scale 1x1 128x128; rm a.weight_scale; "
                           "fp8 b 128x128 .weight_scale 1x1 128x128; rm b.weight_scale");
  convert(model.path, model.dir / "bf16", "bf16");
  const LoadedModel in(model.path), bf16(model.dir / "bf16");
  for (const auto& [name, tensor] : in.tensors) {
    std::vector<float> values;
    for (const std::byte code : tensor.bytes)
      values.push_back(E4M3{std::to_integer<std::uint8_t>(code)}.to_float());
    EXPECT_EQ(bf16.at(name).bytes, encode(values, DType::bf16)) << name;
  }
  quantize_checkpoint(model.path, model.dir / "q");
  quantize_checkpoint(model.dir / "bf16", model.dir / "q of bf16");
  expect_same_tensors(model.dir / "q", model.dir / "q of bf16");
}

}  // namespace nvfp4::lost_test
