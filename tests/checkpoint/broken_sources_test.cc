#include "checkpoint/checkpoints.h"

/// What verify calls broken in a source does not come out of quantize and convert as if it were
/// whole.
namespace nvfp4::broken_sources_test {

namespace fs = std::filesystem;

const std::string kModule = "model.layers.0.mlp.down_proj";

PackedWeight fp8_with(float scale) {
  PackedWeight w = fp8_blocks(kModule, 128, 128);
  w.tensors[0].bytes[7] = std::byte{0x7E};  // 448, so that the scale decides
  w.tensors[1].bytes = encode({scale}, safetensors::DType::f32);
  return w;
}

PackedWeight mxfp4_with(int exponent) {
  PackedWeight w = mxfp4_matrix("layers.0.ffn.experts.0.w1", 32, 64, 120, 125);
  w.tensors[1].bytes[5] = static_cast<std::byte>(exponent);
  w.tensors[0].bytes[std::size_t{5} * 16] = std::byte{0x07};  // 6
  return w;
}

QuantizeReport write(const TempDir& dir, const std::string& to, bool force) {
  return quantize_or_convert(dir / "in", dir / "out", to, force);
}

struct Broken {
  const char* name;
  std::function<PackedWeight()> weight;
  const char* code;  ///< "" if it is sound
  bool refused = true;
};

const std::vector<Broken>& cases() {
  static const std::vector<Broken> all = {
      {"Fp8", [] { return fp8_with(1e-4f); }, ""},
      {"Fp8Zero", [] { return fp8_with(-0.0f); }, "scale-zero", /*refused=*/false},
      {"Fp8Negative", [] { return fp8_with(-1e-4f); }, "scale-negative"},
      {"Fp8NaN", [] { return fp8_with(std::nanf("")); }, "scale-nan"},
      {"Fp8Infinite", [] { return fp8_with(-INFINITY); }, "scale-nan"},
      {"Fp8JustSmallEnough", [] { return fp8_with(5.99f); }, ""},
      {"Fp8TooLarge", [] { return fp8_with(6.0f); }, "scale-too-large"},
      {"Fp8Absurd", [] { return fp8_with(3e38f); }, "scale-too-large"},
      {"Mxfp4", [] { return mxfp4_with(135); }, ""},
      {"Mxfp4NaN", [] { return mxfp4_with(255); }, "scale-nan"},
      {"Mxfp4TooLarge", [] { return mxfp4_with(136); }, "scale-too-large"},
      {"Mxfp4Absurd", [] { return mxfp4_with(254); }, "scale-too-large"},
  };
  return all;
}

class BrokenSource : public testing::TestWithParam<Broken> {};

TEST_P(BrokenSource, IsRefusedUnlessForced) {
  const Broken& broken = GetParam();
  const TempDir dir;
  write_model(dir / "in", {broken.weight().tensors}, kLlamaConfig);
  const std::string code = broken.code;
  EXPECT_EQ(codes_of(verify_checkpoint({dir / "in", {}, "", {}})),
            code.empty() ? std::set<std::string>{} : std::set<std::string>{code});
  const std::map<std::string, std::function<QuantizeReport(bool force, bool dry_run)>> writers = {
      {"quantize",
       [&](bool force, bool dry_run) {
         auto options = quantize_options(dir / "in", dir / "out");
         options.allow.broken_scales = force;
         if (force) options.ignore = {"*"};  // NVFP4 has no NaN
         options.dry_run = dry_run;
         options.overwrite = true;
         return quantize_checkpoint(options);
       }},
      {"convert", [&](bool force, bool dry_run) {
         ConvertOptions options;
         options.input = dir / "in";
         options.output = dir / "out";
         options.to = "bf16";
         options.allow.broken_scales = force;
         options.dry_run = dry_run;
         options.overwrite = true;
         return convert_checkpoint(options);
       }}};
  for (const auto& [name, write] : writers) {
    fs::remove_all(dir / "out");
    for (const bool dry_run : {true, false}) {
      if (code.empty() || !broken.refused) {
        EXPECT_TRUE(write(false, dry_run).warnings.empty()) << name;
        continue;
      }
      expect_error<FormatError>([&, &write = write] { write(false, dry_run); },
                                {code, "in/model.safetensors", "1 of", "--allow broken-scales"});
      EXPECT_FALSE(fs::exists(dir / "out")) << name;
    }
    if (code.empty() || !broken.refused) continue;
    const QuantizeReport forced = write(true, false);
    ASSERT_FALSE(forced.warnings.empty()) << name;
    EXPECT_NE(forced.warnings[0].find("--allow broken-scales"), std::string::npos)
        << forced.warnings[0];
    EXPECT_NE(forced.warnings[0].find(code), std::string::npos) << forced.warnings[0];
    EXPECT_TRUE(fs::exists(dir / "out" / "model.safetensors")) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BrokenSource, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Both NaN of E4M3, where a run quantizes, decodes and copies.
TEST(BrokenSource, CodesThatAreNaNAreRefusedUnlessForced) {
  for (const int nan : {0x7F, 0xFF}) {
    SCOPED_TRACE(nan);
    const TempDir dir;
    PackedWeight weight = fp8_blocks(kModule, 128, 128);
    weight.tensors[0].bytes[7] = static_cast<std::byte>(nan);
    weight.tensors[0].bytes[9000] = static_cast<std::byte>(nan);
    write_model(dir / "in", {weight.tensors}, kLlamaConfig);
    const VerifyReport report = verify_checkpoint({dir / "in", {}, "", {}});
    ASSERT_EQ(codes_of(report), std::set<std::string>{"code-nan"});
    EXPECT_NE(report.findings[0].text.find("2 of 16384 FP8 codes"), std::string::npos);
    EXPECT_TRUE(report.broken());
    auto options = quantize_options(dir / "in", dir / "out");
    const std::initializer_list<std::string_view> words = {"code-nan", "in/model.safetensors",
                                                           "down_proj", "--allow broken-scales"};
    expect_error<FormatError>([&] { quantize_checkpoint(options); }, words);
    options.ignore = {"*"};
    expect_error<FormatError>([&] { quantize_checkpoint(options); }, words);
    ConvertOptions convert;
    convert.input = dir / "in";
    convert.output = dir / "out";
    convert.to = "bf16";
    expect_error<FormatError>([&] { convert_checkpoint(convert); }, words);
    EXPECT_FALSE(fs::exists(dir / "out"));
    options.allow.broken_scales = convert.allow.broken_scales = options.overwrite =
        convert.overwrite = true;
    for (const QuantizeReport& forced :
         {quantize_checkpoint(options), convert_checkpoint(convert)}) {
      const auto said = std::ranges::find_if(forced.warnings, [](const std::string& w) {
        return w.find("code-nan") != std::string::npos;
      });
      ASSERT_NE(said, forced.warnings.end());
      EXPECT_TRUE(said->starts_with("--allow broken-scales: ")) << *said;
      EXPECT_NE(said->find("2 codes are NaN"), std::string::npos) << *said;
    }
  }
}

/// A scale that makes NaN of every weight under it is no NaN code.
TEST(BrokenSource, ScalesThatAreNaNAreNotCountedAsCodes) {
  for (const auto& [scale, codes] :
       {std::pair(std::nanf(""), 0), {INFINITY, 0}, {std::nanf(""), 2}, {INFINITY, 2}}) {
    SCOPED_TRACE(scale);
    const TempDir dir;
    PackedWeight weight = fp8_with(scale);
    weight.tensors[0].bytes[20] = std::byte{0};  // infinity times zero
    for (int i = 0; i < codes; ++i)
      weight.tensors[0].bytes[static_cast<std::size_t>(500 * i)] = std::byte{0xFF};
    write_model(dir / "in", {weight.tensors}, kLlamaConfig);
    auto quantize = quantize_options(dir / "in", dir / "out");
    quantize.allow.broken_scales = true;
    if (std::isnan(scale))
      expect_error<FormatError>([&] { quantize_checkpoint(quantize); },
                                {codes > 0 ? "code-nan" : "scale-nan", "must be finite"});
    quantize.ignore = {"*"};
    for (const bool decodes : {false, true}) {
      fs::remove_all(dir / "out");
      const QuantizeReport report =
          decodes ? write(dir, "bf16", true) : quantize_checkpoint(quantize);
      std::string all;
      for (const std::string& w : report.warnings) all += w + "\n";
      EXPECT_NE(all.find("scale-nan"), std::string::npos) << all;
      EXPECT_EQ(all.find("code-nan") != std::string::npos, codes > 0) << all;
      EXPECT_EQ(all.find("2 codes are NaN") != std::string::npos, codes > 0) << all;
    }
  }
}

TEST(BrokenSource, CodesThatAreNaNAreNotCopiedBesideNvfp4) {
  const TempDir dir;
  PackedWeight kept = fp8_blocks("model.layers.0.self_attn.o_proj", 128, 128);
  write_model(dir / "source", {{random_tensor(kModule + ".weight", {128, 128})}}, kLlamaConfig);
  quantize_checkpoint(quantize_options(dir / "source", dir / "in"));
  const auto add = [&](std::byte code) {
    LoadedFolder folder(dir / "in");
    kept.tensors[0].bytes[5] = code;
    auto& shard = folder.shards.begin()->second;
    folder.remove_module("model.layers.0.self_attn.o_proj");
    for (const auto& t : kept.tensors) shard.push_back(t);
    folder.write(dir / "in");
  };
  ConvertOptions options;
  options.input = dir / "in";
  options.output = dir / "out";
  options.to = "compressed-tensors";
  add(std::byte{0x30});
  convert_checkpoint(options);  // copied as it is
  add(std::byte{0x7F});
  options.overwrite = true;
  expect_error<FormatError>([&] { convert_checkpoint(options); }, {"code-nan", "o_proj"});
  EXPECT_TRUE(codes_of(verify_checkpoint({dir / "in", {}, "", {}})).contains("code-nan"));
}

/// Faults of NVFP4 that a conversion would carry on.
TEST(BrokenNvfp4, IsNotConverted) {
  struct Case {
    const char* code;
    const char* tensor;
    std::function<void(std::vector<std::byte>&)> change;
  };
  const auto set = [](float x) {
    return [x](std::vector<std::byte>& bytes) { bytes = encode({x}, safetensors::DType::f32); };
  };
  const Case cases[] = {
      {"scale-nan", ".weight_scale", [](auto& b) { b[3] = std::byte{0x7F}; }},
      {"scale-negative", ".weight_scale", [](auto& b) { b[3] = std::byte{0xB8}; }},
      {"global-scale-invalid", ".weight_scale_2", set(0)},
      {"global-scale-sense", ".weight_scale_2", set(1000)},
      {"input-scale-invalid", ".input_scale", set(-1)},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    fs::remove_all(dir / "source");
    fs::remove_all(dir / "in");
    write_model(dir / "source", {{random_tensor(kModule + ".weight", {64, 64})}}, kLlamaConfig);
    quantize_checkpoint(quantize_options(dir / "source", dir / "in"));
    LoadedFolder folder(dir / "in");
    c.change(folder.at(kModule + c.tensor).bytes);
    folder.write(dir / "in");
    for (const char* to : {"compressed-tensors", "bf16"}) {
      ConvertOptions options;
      options.input = dir / "in";
      options.output = dir / "out";
      options.to = to;
      if (std::string(to) == "bf16" && std::string(c.code) == "input-scale-invalid") {
        EXPECT_TRUE(convert_checkpoint(options).warnings.empty()) << "it writes none";
        fs::remove_all(dir / "out");
        continue;
      }
      expect_error<FormatError>([&] { convert_checkpoint(options); },
                                {c.code, "nvfp4 repair", "--allow broken-scales"});
      EXPECT_FALSE(fs::exists(dir / "out"));
    }
  }
}

/// Of gate and up, which loaders fuse, in both senses of the number that is stored.
TEST(BrokenNvfp4, PartnersWithoutACommonScaleAreRefusedUnlessForced) {
  const TempDir dir;
  const std::string gate = "model.layers.0.mlp.gate_proj", up = "model.layers.0.mlp.up_proj";
  write_model(
      dir / "source",
      {{random_tensor(gate + ".weight", {64, 64}), random_tensor(up + ".weight", {64, 64})}},
      kLlamaConfig);
  for (const auto& [format, global, value] :
       {std::tuple("compressed-tensors", ".weight_global_scale", 1e30f),
        {"modelopt", ".weight_scale_2", 1e-30f},
        {"comfyui", ".weight_scale_2", 1e-30f}}) {
    SCOPED_TRACE(format);
    fs::remove_all(dir / "in");
    auto options = quantize_options(dir / "source", dir / "in");
    options.format = format;
    quantize_checkpoint(options);
    LoadedFolder folder(dir / "in");
    folder.set_scalar(gate + global, value);
    folder.write(dir / "in");
    EXPECT_TRUE(verify_checkpoint({dir / "in", {}, "", {}}).broken());
    for (const char* to : {"quantize", "modelopt", "bf16"}) {
      SCOPED_TRACE(to);
      expect_error<FormatError>([&] { write(dir, to, false); },
                                {"fused-globals-far", gate, up, "--allow broken-scales"});
      EXPECT_FALSE(fs::exists(dir / "out"));
      const QuantizeReport forced = write(dir, to, true);
      ASSERT_FALSE(forced.warnings.empty());
      EXPECT_TRUE(forced.warnings[0].starts_with("--allow broken-scales: ")) << forced.warnings[0];
      EXPECT_NE(forced.warnings[0].find("fused-globals-far"), std::string::npos);
      fs::remove_all(dir / "out");
    }
    if (std::string(format) == "comfyui") continue;  // is not repaired
    RepairOptions repair;
    repair.input = dir / "in";
    repair.output = dir / "out";
    expect_error<UnsupportedError>([&] { repair_checkpoint(repair); },
                                   {"fused-globals-far", "--source"});
  }
}

/// Whatever scale a matrix of zeros has.
TEST(BrokenNvfp4, PartnersOfZerosHaveAnyScale) {
  const TempDir dir;
  const std::string gate = "model.layers.0.mlp.gate_proj", up = "model.layers.0.mlp.up_proj";
  TestTensor zeros = random_tensor(up + ".weight", {64, 64});
  std::ranges::fill(zeros.bytes, std::byte{});
  write_model(dir / "source", {{random_tensor(gate + ".weight", {64, 64}), zeros}}, kLlamaConfig);
  quantize_checkpoint(quantize_options(dir / "source", dir / "whole"));
  for (const auto& [of_gate, of_up] : {std::pair(1e-6f, 1.0f), {1e-4f, 1e-12f}}) {
    LoadedFolder folder(dir / "whole");
    folder.set_scalar(gate + ".weight_scale_2", of_gate);
    folder.set_scalar(up + ".weight_scale_2", of_up);
    folder.write(dir / "in");
    const auto codes = codes_of(verify_checkpoint({dir / "in", {}, "", {}}));
    EXPECT_EQ(codes.count("fused-globals-far"), 0U);
    EXPECT_EQ(codes.count("fused-globals"), 1U);
    write(dir, "compressed-tensors", false);
    fs::remove_all(dir / "out");
  }
}

/// What may be meant is taken, and told.
TEST(BrokenNvfp4, OddScalesAreTold) {
  const TempDir dir;
  const std::string gate = "model.layers.0.mlp.gate_proj", up = "model.layers.0.mlp.up_proj";
  write_model(dir / "source",
              {{random_tensor(gate + ".weight", {64, 64}), random_tensor(up + ".weight", {64, 64}),
                random_tensor(kModule + ".weight", {64, 64})}},
              kLlamaConfig);
  quantize_checkpoint(quantize_options(dir / "source", dir / "modelopt"));
  const auto warnings = [&](const std::string& tensor, float value, const char* to) {
    LoadedFolder folder(dir / "modelopt");
    folder.set_scalar(tensor, value);
    folder.write(dir / "in");
    std::string all;
    for (const std::string& w : write(dir, to, false).warnings) all += w + "\n";
    fs::remove_all(dir / "in");
    fs::remove_all(dir / "out");
    return all;
  };
  EXPECT_EQ(warnings(kModule + ".weight_scale_2", 1e-4f, "compressed-tensors"), "");
  for (const char* to : {"compressed-tensors", "bf16"}) {
    const std::string tiny = warnings(kModule + ".weight_scale_2", 1e-30f, to);
    EXPECT_NE(tiny.find("global-scale-tiny"), std::string::npos) << tiny;
    EXPECT_NE(tiny.find(kModule), std::string::npos) << tiny;
  }
  const std::string fused = warnings(gate + ".weight_scale_2", 1e-3f, "compressed-tensors");
  EXPECT_NE(fused.find("fused-globals: "), std::string::npos) << fused;
  EXPECT_NE(fused.find("nvfp4 repair"), std::string::npos) << fused;
  EXPECT_EQ(warnings(gate + ".weight_scale_2", 1e-3f, "bf16"), "") << "each has its own there";
}

/// Scales of keys and values, whatever becomes of them.
TEST(BrokenCache, IsRefusedUnlessForced) {
  const std::string attention = "model.layers.0.self_attn";
  const std::string scale = attention + ".k_proj.k_scale";
  const TempDir dir;
  write_model(dir / "source",
              {{random_tensor(attention + ".k_proj.weight", {64, 64}),
                {{scale, safetensors::DType::f32, {}}, encode({1}, safetensors::DType::f32)}}},
              kLlamaConfig);
  quantize_checkpoint(quantize_options(dir / "source", dir / "modelopt"));
  for (const auto& [value, code] : {std::pair(-0.5f, "cache-scale-negative"),
                                    {std::nanf(""), "scale-nan"},
                                    {INFINITY, "scale-nan"}}) {
    SCOPED_TRACE(value);
    for (const char* name : {"source", "modelopt"}) {
      LoadedFolder folder(dir / name);
      folder.set_scalar(scale, value);
      folder.write(dir / "in");
      EXPECT_TRUE(codes_of(verify_checkpoint({dir / "in", {}, "", {}})).contains(code));
      for (const std::string to : {"quantize", "compressed-tensors", "bf16"}) {
        if (to != "quantize" && std::string(name) == "source") continue;  // nothing to convert
        expect_error<FormatError>([&] { write(dir, to, false); },
                                  {code, scale, "--allow broken-scales"});
        EXPECT_FALSE(fs::exists(dir / "out")) << to;
        const auto warnings = write(dir, to, true).warnings;
        ASSERT_FALSE(warnings.empty()) << to;
        EXPECT_TRUE(warnings[0].starts_with("--allow broken-scales: ")) << warnings[0];
        EXPECT_NE(warnings[0].find(code), std::string::npos) << warnings[0];
        fs::remove_all(dir / "out");
      }
      fs::remove_all(dir / "in");
    }
  }
}

/// A factor that the model has learned may be negative: nothing says that keys are cached by it.
TEST(BrokenCache, IsNoneThatNothingDeclares) {
  const TempDir dir;
  const std::string name = "h.0.attn.k_scale";
  write_model(dir / "in",
              {{random_tensor("h.0.attn.to_keys.weight", {64, 64}),
                {{name, safetensors::DType::f32, {1}}, encode({-2}, safetensors::DType::f32)}}},
              "{}");
  EXPECT_FALSE(
      codes_of(verify_checkpoint({dir / "in", {}, "", {}})).contains("cache-scale-negative"));
  quantize_checkpoint(quantize_options(dir / "in", dir / "out"));
  EXPECT_EQ(LoadedFolder(dir / "out").scalar(name), -2);
  write_text(dir / "r.yaml", "kv_cache: fp8\nrules: []\n");
  auto options = quantize_options(dir / "in", dir / "again");
  options.recipe = (dir / "r.yaml").string();
  expect_error<FormatError>([&] { quantize_checkpoint(options); }, {"cache-scale-negative", name});
}

}  // namespace nvfp4::broken_sources_test
