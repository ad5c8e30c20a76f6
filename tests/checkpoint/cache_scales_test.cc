#include "checkpoint/checkpoints.h"
#include "checkpoint/statistics_file.h"

/// Scales of cached keys and values: from statistics, through conversions, verified.
namespace nvfp4::cache_scales_test {

using safetensors::DType;

const std::string kFirst = "model.layers.0.self_attn", kSecond = "model.layers.1.self_attn";
const std::map<std::string, float> kAmaxes = {{kFirst + ".k_cache", 7.25f},
                                              {kFirst + ".v_cache", 3.1f},
                                              {kSecond + ".k_cache", 0.0f},
                                              {kSecond + ".v_cache", 900.5f}};

class CacheScales : public ::testing::Test {
 protected:
  CacheScales() {
    write_tiny_llama(in_);
    write_cache_statistics(kAmaxes);
  }

  void write_cache_statistics(const std::map<std::string, float>& amaxes) {
    std::vector<TestTensor> tensors;
    for (const auto& [module, s] : llama_statistics())
      for (const auto& [suffix, values] :
           {std::pair(".diag", s.diagonal), {".count", {s.count}}, {".amax", {1.0f}}})
        tensors.push_back(floats(module + suffix, values));
    for (const auto& [name, amax] : amaxes) tensors.push_back(floats(name + ".amax", {amax}));
    write_shard(statistics_, tensors, {{"nvfp4_statistics", "1"}});
  }

  QuantizeCheckpointOptions options(const fs::path& output) const {
    return quantize_options(in_, output, {"--recipe", "nvidia", "--statistics", statistics_});
  }

  static VerifyReport verified(const fs::path& path, const fs::path& source = {}) {
    auto options = verify_options(path);
    if (!source.empty()) options.source = source;
    return verify_checkpoint(options);
  }
  static std::set<std::string> cache_codes(const fs::path& path) {
    std::set<std::string> codes = codes_of(verified(path));
    std::erase_if(codes, [](const std::string& code) {
      return !code.starts_with("cache-") && code != "scale-nan" && code != "scale-zero";
    });
    return codes;
  }
  /// Returns the codes of findings of a folder that was quantized and then changed.
  std::set<std::string> codes_after(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(out_);
    change(folder);
    folder.write(dir_ / "changed");
    return cache_codes(dir_ / "changed");
  }

  static void convert(const fs::path& from, const fs::path& to, const std::string& format) {
    convert_checkpoint(convert_options(from, to, format));
  }

  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out", statistics_ = dir_ / "stats";
};

TEST_F(CacheScales, EachFormatNamesAmaxesBy448) {
  for (const bool ct : {false, true}) {
    auto run = options(dir_ / (ct ? "ct" : "modelopt"));
    run.format = ct ? "compressed-tensors" : "modelopt";
    quantize_checkpoint(run);
    const LoadedModel model(run.output);
    for (const std::string& attention : {kFirst, kSecond})
      for (const std::string kind : {"k", "v"}) {
        const std::string name = attention + "." + (ct ? "" : kind + "_proj.") + kind + "_scale";
        const float amax = kAmaxes.at(attention + "." + kind + "_cache");
        EXPECT_EQ(model.scalar(name), amax == 0 ? 1 : amax / 448) << name;
        EXPECT_EQ(model.at(name).dtype, DType::f32);
        EXPECT_EQ(model.at(name).shape.size(), ct ? 1u : 0u);
      }
    const VerifyReport report = verified(run.output, in_);
    EXPECT_EQ(report.count(Severity::error) + report.count(Severity::warning), 0)
        << text_of(report);
    EXPECT_FALSE(codes_of(report).contains("source-extra"));
    EXPECT_EQ(cache_codes(run.output), std::set<std::string>{});
  }
}

TEST_F(CacheScales, OfRanksAreTheBytesOfOneProcess) {
  quantize_checkpoint(options(out_));
  for (int rank = 0; rank < 3; ++rank) {
    auto part = options(dir_ / "ranks");
    part.rank = rank;
    part.ranks = 3;
    quantize_checkpoint(part);
  }
  EXPECT_EQ(files_of(dir_ / "ranks"), files_of(out_));
}

TEST_F(CacheScales, UnquantizedCacheHasNone) {
  auto run = options(out_);
  run.recipe = "mlp";
  quantize_checkpoint(run);
  EXPECT_FALSE(LoadedModel(out_).has(kFirst + ".k_proj.k_scale"));
}

TEST_F(CacheScales, HfQuantConfigDeclaresNvfp4) {
  write_text(dir_ / "r.yaml", "kv_cache: nvfp4\nrules: []\n");
  auto run = options(out_);
  run.recipe = (dir_ / "r.yaml").string();
  quantize_checkpoint(run);
  LoadedFolder folder(out_);
  EXPECT_EQ(folder.hf_quant["quantization"]["kv_cache_quant_algo"], "NVFP4");
  EXPECT_EQ(folder.scalar(kFirst + ".k_proj.k_scale"), 7.25f / 448);
  EXPECT_EQ(cache_codes(out_), std::set<std::string>{});
  run.format = "compressed-tensors";
  run.overwrite = true;
  EXPECT_THAT(quantize_checkpoint(run).warnings,
              testing::Contains("keys and values are to be cached in NVFP4, which "
                                "compressed-tensors cannot declare"));
  EXPECT_FALSE(LoadedModel(out_).has(kFirst + ".k_scale"));
}

TEST_F(CacheScales, ConversionChangesOnlyTheNames) {
  quantize_checkpoint(options(out_));
  convert(out_, dir_ / "ct", "compressed-tensors");
  convert(dir_ / "ct", dir_ / "again", "modelopt");
  LoadedFolder first(out_), ct(dir_ / "ct"), again(dir_ / "again");
  for (const std::string kind : {"k", "v"}) {
    const std::string name = kSecond + "." + kind + "_proj." + kind + "_scale";
    EXPECT_EQ(ct.at(kSecond + "." + kind + "_scale").bytes, first.at(name).bytes);
    EXPECT_EQ(again.at(name).bytes, first.at(name).bytes);
    EXPECT_EQ(again.at(name).spec.shape, first.at(name).spec.shape);
  }
  EXPECT_EQ(verified(dir_ / "ct", out_).count(Severity::error), 0)
      << text_of(verified(dir_ / "ct", out_));
}

/// A model that is not quantized declares no cache, and its loaders do not expect them.
TEST_F(CacheScales, GoWithTheirDeclaration) {
  for (const std::string from : {"modelopt", "compressed-tensors"}) {
    auto run = options(dir_ / from);
    run.format = from;
    quantize_checkpoint(run);
    LoadedFolder source(dir_ / from);
    source.shard_of(kFirst + ".q_proj.weight")
        .push_back({{"model.layers.0.mlp.k_scale", DType::f32, {1}}, encode({2}, DType::f32)});
    source.write(dir_ / (from + "-in"));
    auto convert = convert_options(dir_ / (from + "-in"), dir_ / (from + "-bf16"), "bf16");
    EXPECT_TRUE(says(convert_checkpoint(convert).warnings,
                     "the scales of keys and values are left out, since the output"));
    const LoadedModel plain(convert.output);
    for (const std::string& attention : {kFirst, kSecond})
      for (const char* name : {".k_proj.k_scale", ".v_proj.v_scale", ".k_scale", ".v_scale"})
        EXPECT_FALSE(plain.has(attention + name)) << attention << name;
    EXPECT_EQ(plain.scalar("model.layers.0.mlp.k_scale"), 2) << "of no attention";
    const auto codes = codes_of(verified(convert.output, convert.input));
    EXPECT_TRUE(codes.contains("source-derived"));
    EXPECT_FALSE(codes.contains("source-missing"));
  }
}

/// Nothing says that they are scales of a cache.
TEST_F(CacheScales, ThatNothingDeclaresStay) {
  LoadedFolder model(in_);
  model.shard_of(kFirst + ".q_proj.weight")
      .push_back({{kFirst + ".k_proj.k_scale", DType::f32, {}}, encode({0.25f}, DType::f32)});
  model.write(dir_ / "given");
  quantize_checkpoint(dir_ / "given", out_);
  convert(out_, dir_ / "bf16", "bf16");
  EXPECT_EQ(LoadedModel(dir_ / "bf16").scalar(kFirst + ".k_proj.k_scale"), 0.25f);
}

TEST_F(CacheScales, OfTheInputWinOverStatistics) {
  LoadedFolder model(in_);
  model.shard_of(kFirst + ".q_proj.weight")
      .push_back({{kFirst + ".k_proj.k_scale", DType::f32, {}}, encode({0.25f}, DType::f32)});
  model.write(dir_ / "given");
  auto run = options(out_);
  run.input = dir_ / "given";
  const auto warnings = quantize_checkpoint(run).warnings;
  EXPECT_TRUE(says(warnings, "those of the statistics are left out"))
      << testing::PrintToString(warnings);
  const LoadedModel out(out_);
  EXPECT_EQ(out.scalar(kFirst + ".k_proj.k_scale"), 0.25f);
  EXPECT_FALSE(out.has(kFirst + ".v_proj.v_scale"));
}

/// The other tensors of the model become BF16.
TEST_F(CacheScales, ModelInFp32KeepsThemInF32) {
  const std::vector<TestTensor> shard = {
      random_tensor(kFirst + ".k_proj.weight", {64, 64}, DType::f32),
      {{kFirst + ".k_scale", DType::f32, {1}}, encode({0.3f}, DType::f32)}};
  write_model(dir_ / "f32", {shard}, "{}");
  quantize_checkpoint(dir_ / "f32", out_);
  EXPECT_EQ(LoadedModel(out_).scalar(kFirst + ".k_proj.k_scale"), 0.3f);
}

/// A factor of a gate, one for each head, that of a tower: no cache has them.
TEST_F(CacheScales, AreNoOtherTensorsOfSuchNames) {
  LoadedFolder model(in_);
  auto& shard = model.shard_of(kFirst + ".q_proj.weight");
  const std::string tower = "visual.blocks.0.attn";
  shard.push_back(random_tensor(tower + ".k_proj.weight", {64, 64}));
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> others = {
      {"model.layers.0.mlp.k_scale", {1}},
      {"model.layers.0.mlp.v_proj.v_scale", {}},
      {kSecond + ".v_scale", {1, 1, 1}},
      {tower + ".k_scale", {1}}};
  for (const auto& [name, shape] : others)
    shard.push_back({{name, DType::f32, shape}, encode({-0.25f}, DType::f32)});
  shard.push_back({{kSecond + ".k_scale", DType::i32, {1}}, std::vector<std::byte>(4)});
  model.write(dir_ / "model");
  write_cache_statistics({{kFirst + ".k_cache", 7.25f}, {kFirst + ".v_cache", 3.1f}});
  auto run = options(out_);
  run.input = dir_ / "model";
  quantize_checkpoint(run);
  convert(out_, dir_ / "ct", "compressed-tensors");
  for (const fs::path& path : {out_, dir_ / "ct"}) {
    LoadedFolder out(path);
    for (const auto& [name, shape] : others) {
      EXPECT_EQ(out.at(name).spec.shape, shape) << name;
      EXPECT_EQ(out.at(name).bytes, encode({-0.25f}, DType::f32)) << name;
    }
    EXPECT_EQ(out.at(kSecond + ".k_scale").spec.dtype, DType::i32);
    EXPECT_EQ(cache_codes(path), std::set<std::string>{"cache-scale-partly"})
        << "not of the second";
  }
  EXPECT_EQ(LoadedModel(out_).scalar(kFirst + ".k_proj.k_scale"), 7.25f / 448) << "of statistics";
}

/// A configuration that declares a cache makes attentions of any name known.
TEST_F(CacheScales, OfAttentionsOfAnyNameFollowADeclaration) {
  const std::vector<TestTensor> shard = {
      random_tensor("h.0.attn.to_keys.weight", {64, 64}),
      {{"h.0.attn.k_scale", DType::f32, {1, 1}}, encode({0.3f}, DType::f32)}};
  for (const bool declared : {false, true}) {
    const fs::path in = dir_ / (declared ? "declared" : "plain");
    const std::string cache = R"("kv_cache_scheme": {"num_bits": 8, "type": "float"})";
    write_model(
        in, {shard},
        declared ? R"({"quantization_config": {"quant_method": "fp8", )" + cache + "}}" : "{}");
    quantize_checkpoint(in, out_, {"--overwrite"});
    EXPECT_EQ(LoadedModel(out_).has("h.0.attn.k_proj.k_scale"), declared);
    EXPECT_EQ(LoadedModel(out_).has("h.0.attn.k_scale"), !declared);
  }
}

/// Without its scales it does not matter beside a recipe.
TEST_F(CacheScales, AnotherTypeWithoutScalesIsReplaced) {
  auto run = options(dir_ / "ct");
  run.format = "compressed-tensors";
  quantize_checkpoint(run);
  LoadedFolder folder(dir_ / "ct");
  folder.quantization()["kv_cache_scheme"]["type"] = "int";
  for (const std::string& attention : {kFirst, kSecond})
    for (const char* name : {".k_scale", ".v_scale"}) folder.remove(attention + name);
  folder.write(dir_ / "changed");
  run = options(out_);
  run.input = dir_ / "changed";
  quantize_checkpoint(run);
  EXPECT_EQ(LoadedModel(out_).scalar(kFirst + ".k_proj.k_scale"), 7.25f / 448);
}

TEST_F(CacheScales, ThatNothingGivesAreSaidToBe1) {
  auto run = options(out_);
  run.statistics.reset();
  const auto warnings = quantize_checkpoint(run).warnings;
  EXPECT_TRUE(says(warnings, "loaders use the scale 1")) << testing::PrintToString(warnings);
  EXPECT_EQ(cache_codes(out_), std::set<std::string>{"cache-scale-missing"});
}

TEST_F(CacheScales, OfWrongStatisticsAreRefused) {
  const auto refused = [&](const std::map<std::string, float>& amaxes, std::string_view text) {
    write_cache_statistics(amaxes);
    expect_error<FormatError>([&] { quantize_checkpoint(options(out_)); }, {text});
  };
  refused({{kFirst + ".k_cache", 1.0f}}, "k_cache.amax has no .v_cache.amax beside it");
  refused({{kFirst + ".k_cache", NAN}, {kFirst + ".v_cache", 1.0f}}, "k_cache.amax holds nan");
  refused({{kFirst + ".k_cache", -1.0f}, {kFirst + ".v_cache", 1.0f}}, "k_cache.amax must be one");
  write_cache_statistics(
      {{"model.layers.7.self_attn.k_cache", 1.0f}, {"model.layers.7.self_attn.v_cache", 1.0f}});
  const auto warnings = quantize_checkpoint(options(out_)).warnings;
  EXPECT_TRUE(says(warnings, "keys and values of model.layers.7.self_attn"))
      << testing::PrintToString(warnings);
}

}  // namespace nvfp4::cache_scales_test
