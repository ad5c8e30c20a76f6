#include "checkpoint/checkpoints.h"

namespace nvfp4::checkpoint_convert_test {

using enum safetensors::DType;

/// A quantized tiny llama whose global and input scales are random floats, fused ones equal.
void write_quantized(const fs::path& folder, const std::string& format, Scheme scheme) {
  const TempDir dir;
  write_tiny_llama(dir / "plain");
  quantize_checkpoint(dir / "plain", dir / "q", {"--format", format, "--scheme", scheme});
  LoadedFolder model(dir / "q");
  std::mt19937 random(7);
  std::uniform_real_distribution<float> factor(1, 2);
  for (auto& [file, tensors] : model.shards)
    for (TestTensor& t : tensors) {
      const std::string& name = t.spec.name;
      if (t.spec.dtype != f32) continue;
      const bool fused = name.find("down") == name.npos && name.find("o_proj") == name.npos;
      if (!fused) model.set_scalar(name, model.scalar(name) * factor(random));
    }
  model.write(folder);
}

struct Convert : FolderTest {};

TEST_F(Convert, EveryGlobalScaleSurvivesItsReciprocal) {
  std::vector<TestTensor> tensors;
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const std::string module = fmt::format("m{}", i);
    const float scale = std::ldexp(1 + static_cast<float>(random() % 8388608) * 0x1p-23f, -10);
    tensors.push_back({{module + ".weight", u8, {1, 8}}, random_bytes(8, module, 0, 255)});
    tensors.push_back({{module + ".weight_scale", f8_e4m3, {1, 1}}, {std::byte{0x38}}});
    tensors.push_back({{module + ".weight_scale_2", f32, {}}, encode({scale}, f32)});
  }
  write_model(dir / "a", {tensors}, kLlamaConfig);
  convert(dir / "a", dir / "b", "compressed-tensors");
  const LoadedModel a(dir / "a"), b(dir / "b");
  int exact = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string module = fmt::format("m{}", i);
    const float back = 1 / b.scalar(module + ".weight_global_scale");
    exact += back == a.scalar(module + ".weight_scale_2");
    EXPECT_NEAR(back / a.scalar(module + ".weight_scale_2"), 1, 0x1p-22);
  }
  EXPECT_GT(exact, 350) << "loaders that take the reciprocal get the scale itself where they can";
  EXPECT_LT(exact, 500) << "or else the metadata was not needed";
  convert(dir / "b", dir / "c", "modelopt");
  expect_same_tensors(dir / "a", dir / "c");
  convert(dir / "c", dir / "d", "compressed-tensors");
  expect_same_tensors(dir / "b", dir / "d");
}

TEST_F(Convert, ToPlainDtypesIsTheDequantizedModel) {
  write_quantized(dir / "a", "modelopt", Scheme::w4a4);
  const LoadedModel a(dir / "a");
  for (const std::string to : {"bf16", "fp16"}) {
    const QuantizeReport report = convert(dir / "a", dir / to, to);
    EXPECT_FALSE(fs::exists(dir / to / "hf_quant_config.json"));
    EXPECT_FALSE(LoadedFolder(dir / to).config.contains("quantization_config"));
    const LoadedModel plain(dir / to);
    EXPECT_EQ(plain.tensors.size(), 21u);
    for (const TensorReport& r : report.tensors)
      EXPECT_EQ(r.reason == "NVFP4 in the input", r.action == "dequantized") << r.name << r.reason;
    const std::string name = "model.layers.1.mlp.down_proj";
    const auto& t = plain.at(name + ".weight");
    EXPECT_EQ(t.dtype, to == "bf16" ? bf16 : f16);
    const auto bytes = [&](const char* part) {
      return reinterpret_cast<const std::uint8_t*>(a.at(name + part).bytes.data());
    };
    const float global = a.scalar(name + ".weight_scale_2");
    const Matrix expected =
        dequantize({{.rows = 64, .cols = 128}, bytes(".weight"), bytes(".weight_scale"), &global},
                   to == "bf16" ? DType::bf16 : DType::f16);
    EXPECT_EQ(std::memcmp(t.bytes.data(), expected.data<std::byte>(), t.bytes.size()), 0);
  }
}

TEST_F(Convert, WeightBeyondThePlainDtypeIsAnError) {
  const std::string down = "model.layers.0.mlp.down_proj";
  for (const float global : {24.0f, 24.5f}) {  // 6 * 448 * 24 = 64512
    const TempDir dir;
    write_quantized(dir / "a", "modelopt", Scheme::w4a16);
    LoadedFolder model(dir / "a");
    model.set_scalar(down + ".weight_scale_2", global);
    model.at(down + ".weight_scale").bytes.back() = std::byte{0x7E};
    std::ranges::fill(model.at(down + ".weight").bytes, std::byte{0xFF});
    model.write(dir / "a");
    const auto forced = [&](const char* output, const char* to) {
      auto options = convert_options(dir / "a", dir / output, to);
      options.allow.broken_scales = true;  // verify takes weights that large for broken
      convert_checkpoint(options);
    };
    if (global == 24.0f) {
      EXPECT_NO_THROW(forced("b", "fp16"));
    } else {
      expect_error<ValueError>([&] { forced("b", "fp16"); },
                               {down + ".weight", "-65856", "F16", "65504", "--to bf16"});
      EXPECT_FALSE(fs::exists(dir / "b" / "config.json"));
    }
    EXPECT_NO_THROW(forced("c", "bf16"));
  }
}

/// Weights of the converted model against what its input stands for: zero, but for `clamped`.
void expect_lossless(const fs::path& a, const fs::path& b) {
  const CompareReport report = compare_checkpoints(a, b);
  EXPECT_EQ(report.relative_error, 0);
  EXPECT_TRUE(report.only_in_a.empty() && report.only_in_b.empty() &&
              report.shape_mismatch.empty());
  for (const TensorDifference& t : report.tensors) EXPECT_EQ(t.max_error, 0) << t.name;
}

TEST_F(Convert, Mxfp4BecomesNvfp4WithTheSameValues) {
  std::vector<TestTensor> tensors = {random_tensor("model.norm.weight", {64})};
  // 18 powers of two fit; the partners' ranges differ and share one scale.
  append(tensors, mxfp4_matrix("layers.0.ffn.experts.0.w1", 48, 64, 110, 120));
  append(tensors, mxfp4_matrix("layers.0.ffn.experts.0.w3", 48, 64, 103, 112));
  append(tensors, mxfp4_matrix("layers.0.ffn.experts.0.w2", 64, 96, 100, 117));
  write_model(dir / "a", {tensors}, kLlamaConfig);
  const QuantizeReport report = convert(dir / "a", dir / "b", "modelopt");
  for (const TensorReport& t : report.tensors) {
    EXPECT_EQ(t.clamped_blocks, 0u) << t.name;
    EXPECT_EQ(t.squared_error, 0) << t.name;
    EXPECT_EQ(t.action, t.name.find("ffn") == t.name.npos ? "kept" : "converted");
  }
  expect_lossless(dir / "a", dir / "b");
  EXPECT_EQ(findings_of(dir / "b"), "");
  const LoadedModel b(dir / "b");
  const std::string expert = "layers.0.ffn.experts.0.";
  EXPECT_EQ(b.scalar(expert + "w1.weight_scale_2"), b.scalar(expert + "w3.weight_scale_2"));
  EXPECT_EQ(b.scalar(expert + "w1.weight_scale_2"), std::ldexp(1.0f, 120 - 127 - 8));
  EXPECT_EQ(b.at(expert + "w2.weight").bytes,
            LoadedModel(dir / "a").at(expert + "w2.weight").bytes);
  EXPECT_FALSE(b.has(expert + "w1.scale"));

  quantize_checkpoint(dir / "a", dir / "q");
  expect_same_tensors(dir / "b", dir / "q");
}

TEST_F(Convert, TooSmallBlocksAreRoundedAndCounted) {
  PackedWeight w = mxfp4_matrix("w2", 4, 64, 110, 110);
  auto& exponents = w.tensors[1].bytes;
  exponents[0] = std::byte{120};       // the largest: 2^8
  exponents[1] = std::byte{120 - 17};  // the smallest that fits
  exponents[2] = std::byte{120 - 18};  // codes halved
  exponents[3] = std::byte{0};         // all of it lost
  exponents[4] = std::byte{0};         // but zeros lose nothing
  std::fill_n(w.tensors[0].bytes.begin() + 64, 16, std::byte{0x80});
  const auto codes = w.tensors[0].bytes;
  write_model(dir / "a", {w.tensors}, kLlamaConfig);
  const QuantizeReport report = convert(dir / "a", dir / "b", "modelopt");
  ASSERT_EQ(report.tensors.size(), 1u);
  EXPECT_EQ(report.tensors[0].clamped_blocks, 2u);
  EXPECT_GT(report.tensors[0].squared_error, 0);
  EXPECT_EQ(report.tensors[0].clamped, (std::vector<std::int64_t>{2, 3}));
  const auto json = nlohmann::json::parse(to_json(report)).at("tensors").at(0);
  EXPECT_EQ(json.at("clamped_blocks"), 2);
  EXPECT_EQ(json.at("clamped"), (std::vector<int>{2, 3}));
  const LoadedModel b(dir / "b");
  const auto& scales = b.at("w2.weight_scale").bytes;
  EXPECT_EQ(scales[0], std::byte{E4M3::from_float(256).bits});
  EXPECT_EQ(scales[2], std::byte{1}) << "2^-9";
  EXPECT_EQ(scales[4], std::byte{1});
  const auto& out = b.at("w2.weight").bytes;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i / 16 != 2 && i / 16 != 3) {
      EXPECT_EQ(out[i], codes[i]) << i;
      continue;
    }
    for (const int shift : {0, 4}) {
      const auto nibble = [&](std::byte x) {
        return static_cast<std::uint8_t>(std::to_integer<unsigned>(x) >> shift & 15);
      };
      const float value = E2M1{nibble(codes[i])}.to_float() * (i / 16 == 2 ? 0.5f : 0.0f);
      EXPECT_EQ(E2M1{nibble(out[i])}.to_float(), E2M1::from_float(value).to_float()) << i;
    }
  }
}

const char* kGptOssConfig =
    "{\"model_type\": \"gpt_oss\", \"hidden_size\": 64, \"quantization_config\": "
    "{\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"model.layers.*.self_attn\"]}}";

TEST_F(Convert, TakesTheStackedExpertsOfGptOssApart) {
  const std::string p = "model.layers.0.mlp.experts.";
  std::vector<TestTensor> tensors;
  const PackedWeight gate_up = mxfp4_weight(p + "gate_up_proj_blocks", p + "gate_up_proj_scales",
                                            {3, 96, 2, 16}, {3, 96, 2}, 110, 120);
  append(tensors, gate_up);
  append(tensors, mxfp4_weight(p + "down_proj_blocks", p + "down_proj_scales", {3, 64, 3, 16},
                               {3, 64, 3}, 112, 119));
  tensors.push_back(random_tensor(p + "gate_up_proj_bias", {3, 96}));
  tensors.push_back(random_tensor("model.layers.0.self_attn.q_proj.weight", {64, 64}));
  write_model(dir / "a", {tensors}, kGptOssConfig);
  convert(dir / "a", dir / "b", "modelopt");
  expect_lossless(dir / "a", dir / "b");
  const LoadedModel b(dir / "b");
  EXPECT_EQ(b.at(p + "2.gate_proj.weight").shape, (std::vector<std::int64_t>{48, 32}));
  EXPECT_EQ(b.at("model.layers.0.self_attn.q_proj.weight").dtype, bf16) << "convert keeps it";
  EXPECT_EQ(LoadedFolder(dir / "b").quantization()["quant_method"], "modelopt");

  convert(dir / "a", dir / "plain", "bf16");
  expect_lossless(dir / "plain", dir / "b");
  const LoadedModel plain(dir / "plain");
  const auto& t = plain.at(p + "gate_up_proj");
  EXPECT_EQ(t.shape, (std::vector<std::int64_t>{3, 64, 96})) << "as transformers stores it";
  for (const std::int64_t e : {0, 2})
    for (const std::int64_t n : {0, 1, 95})
      for (const std::int64_t k : {0, 33, 63}) {
        std::uint16_t bits;
        std::memcpy(&bits, t.bytes.data() + 2 * ((e * 64 + k) * 96 + n), 2);
        EXPECT_EQ(BF16{bits}.to_float(),
                  gate_up.values[static_cast<std::size_t>((e * 96 + n) * 64 + k)]);
      }
}

TEST_F(Convert, RoundedBlocksAreListedByTheirSourcePlace) {
  const std::string p = "model.layers.0.mlp.experts.";
  std::vector<TestTensor> tensors;
  append(tensors, mxfp4_weight(p + "gate_up_proj_blocks", p + "gate_up_proj_scales", {3, 96, 2, 16},
                               {3, 96, 2}, 110, 120));
  std::vector<std::int64_t> planted;
  for (const auto& [expert, row, block] :
       {std::tuple{0, 0, 1}, {0, 1, 0}, {1, 94, 1}, {2, 95, 0}}) {
    planted.push_back((expert * 96 + row) * 2 + block);
    tensors[1].bytes[static_cast<std::size_t>(planted.back())] = std::byte{20};
    std::fill_n(tensors[0].bytes.begin() + planted.back() * 16, 16, std::byte{0x77});
  }
  write_model(dir / "a", {tensors}, kGptOssConfig);
  const QuantizeReport report = convert(dir / "a", dir / "b", "modelopt");
  ASSERT_EQ(report.tensors.size(), 1u);
  EXPECT_EQ(report.tensors[0].clamped, planted);
  EXPECT_EQ(report.tensors[0].clamped_blocks, planted.size());
}

/// The model with FP8 weights against the same values in FP32.
TEST_F(Convert, Fp8IsQuantizedByItsValues) {
  std::vector<TestTensor> packed, plain;
  const auto add = [&](const std::string& name, const PackedWeight& w, std::int64_t rows) {
    append(packed, w);
    plain.push_back(
        {{name + ".weight", f32, {rows, static_cast<std::int64_t>(w.values.size()) / rows}},
         encode(w.values, f32)});
  };
  const std::string p = "model.layers.0.";
  add(p + "mlp.gate_proj", fp8_blocks(p + "mlp.gate_proj", 208, 144), 208);
  add(p + "mlp.up_proj", fp8_blocks(p + "mlp.up_proj", 208, 144), 208);
  add(p + "self_attn.o_proj",
      fp8_weight(p + "self_attn.o_proj", 48, 64, ".weight_scale", {48, 1}, 1, 64), 48);
  add(p + "mlp.down_proj", fp8_weight(p + "mlp.down_proj", 48, 64, ".weight_scale", {}, 48, 64),
      48);
  const char* config =
      "{\"model_type\": \"deepseek_v3\", \"quantization_config\": {\"quant_method\": \"fp8\"}}";
  write_model(dir / "fp8", {packed}, config);
  write_model(dir / "f32", {plain}, "{\"model_type\": \"deepseek_v3\"}");
  EXPECT_EQ(compare_checkpoints(dir / "f32", dir / "fp8").max_error, 0);
  for (const std::string format : {"modelopt", "compressed-tensors"}) {
    auto options =
        quantize_options(dir / "f32", dir / fmt::format("q32{}", format), {"--format", format});
    quantize_checkpoint(options);
    options.input = dir / "fp8";
    options.output = dir / fmt::format("q8{}", format);
    const QuantizeReport report = quantize_checkpoint(options);
    EXPECT_GT(report.tensors[0].squared_norm, 0);
    expect_same_tensors(dir / fmt::format("q32{}", format), options.output);
    convert(dir / "fp8", dir / fmt::format("c8{}", format), format);
    expect_same_tensors(options.output, dir / fmt::format("c8{}", format));
    EXPECT_EQ(findings_of(options.output), "");
  }
  quantize_checkpoint(dir / "fp8", dir / "kept", {"--ignore", "*.down_proj"});
  const LoadedModel kept(dir / "kept");
  std::vector<float> values(48 * 64);
  std::memcpy(values.data(), plain[3].bytes.data(), plain[3].bytes.size());
  EXPECT_EQ(kept.at(p + "mlp.down_proj.weight").bytes, encode(values, bf16)) << "not FP8 any more";
  EXPECT_FALSE(kept.has(p + "mlp.down_proj.weight_scale"));
}

TEST_F(Convert, Fp8BesideFourBitWeightsIsNotRounded) {
  write_quantized(dir / "plain", "compressed-tensors", Scheme::w4a4);
  LoadedFolder model(dir / "plain");
  const std::string name = "model.layers.0.mlp.shared.down_proj";
  PackedWeight blocks = fp8_weight(name, 128, 192, ".weight_scale", {1, 2}, 128, 128);
  blocks.tensors[1].spec.dtype = f8_e8m0;
  blocks.tensors[1].bytes = {std::byte{118}, std::byte{120}};
  append(model.shards.begin()->second, blocks);
  model.write(dir / "a");
  convert(dir / "a", dir / "bf16", "bf16");
  const LoadedModel plain(dir / "bf16");
  for (const std::string to : {"modelopt", "comfyui"}) {  // which have no FP8 of square blocks
    auto options = convert_options(dir / "a", dir / to, to);
    expect_error<UnsupportedError>([&] { convert_checkpoint(options); },
                                   {name + ".weight", "FP8, which " + to + " cannot hold"});
    EXPECT_FALSE(fs::exists(options.output));
    options.allow.decode = true;
    const QuantizeReport report = convert_checkpoint(options);
    const auto it = std::ranges::find(report.tensors, name + ".weight", &TensorReport::name);
    ASSERT_NE(it, report.tensors.end());
    EXPECT_EQ(it->action, "dequantized");
    EXPECT_EQ(it->reason, "FP8 in the input");
    const LoadedModel out(dir / to);
    EXPECT_EQ(out.at(name + ".weight").dtype, bf16);
    EXPECT_EQ(out.at(name + ".weight").bytes, plain.at(name + ".weight").bytes);
    EXPECT_EQ(findings_of(dir / to), "");
  }
}

}  // namespace nvfp4::checkpoint_convert_test
