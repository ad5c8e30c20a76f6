#include "checkpoint/checkpoints.h"

namespace nvfp4::quantize_checkpoint_test {

using Names = std::vector<std::string>;

const std::vector<Names>& llama_groups() {
  static const std::vector<Names> groups = [] {
    std::vector<Names> all;
    for (const std::string p : {"model.layers.0.", "model.layers.1."}) {
      all.push_back({p + "self_attn.q_proj", p + "self_attn.k_proj", p + "self_attn.v_proj"});
      all.push_back({p + "self_attn.o_proj"});
      all.push_back({p + "mlp.gate_proj", p + "mlp.up_proj"});
      all.push_back({p + "mlp.down_proj"});
    }
    return all;
  }();
  return groups;
}

const Names kKept = {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                     "model.norm.weight", "lm_head.weight"};

struct QuantizeCheckpoint : FolderTest {};

TEST_F(QuantizeCheckpoint, WritesWhatQuantizeGivesForTheWholeTensors) {
  write_tiny_llama(dir / "in");
  const LoadedModel in(dir / "in");
  for (const Quantizer quantizer : {Quantizer::max, Quantizer::mse}) {
    const QuantizeReport report = quantize_checkpoint(
        dir / "in", dir / "out", {"--method", quantizer_name(quantizer), "--overwrite"});
    const LoadedModel out(dir / "out");
    for (const Names& group : llama_groups()) expect_quantized(in, out, group, quantizer);
    for (const std::string& name : kKept) EXPECT_EQ(out.at(name).bytes, in.at(name).bytes) << name;
    EXPECT_EQ(out.scalar("model.layers.0.mlp.up_proj.input_scale"), 1.0f);
    EXPECT_EQ(out.tensors.size(), 14u * 4 + 7);
    EXPECT_EQ(report.shards, 3);
    EXPECT_EQ(report.shards_reused, 0);
  }
}

TEST_F(QuantizeCheckpoint, EveryTensorIsAlignedToItsElements) {
  write_model(dir / "in",
              {{random_tensor("a.proj.weight", {5, 16}), random_tensor("a.norm.weight", {3}),
                random_tensor("b.proj.weight", {3, 48}), random_tensor("b.norm.weight", {4}),
                random_tensor("c.q_proj.weight", {64, 64})}},
              "{}");
  quantize_checkpoint(dir / "in", dir / "out");
  for (const auto& [name, t] : LoadedModel(dir / "out").tensors)
    EXPECT_EQ(t.begin % static_cast<std::uint64_t>(safetensors::dtype_bits(t.dtype) / 8), 0u)
        << name;
}

TEST_F(QuantizeCheckpoint, CompressedTensorsAndWeightsOnly) {
  write_tiny_llama(dir / "in");
  const LoadedModel in(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out", {"--format", "compressed-tensors"});
  quantize_checkpoint(options);
  const LoadedModel out(dir / "out");
  for (const Names& group : llama_groups()) expect_quantized(in, out, group, Quantizer::mse, false);
  EXPECT_EQ(out.scalar("model.layers.0.mlp.up_proj.input_global_scale"), 1.0f);
  EXPECT_FALSE(fs::exists(dir / "out" / "hf_quant_config.json"));

  options.output = dir / "a16";
  options.scheme = Scheme::w4a16;
  quantize_checkpoint(options);
  const LoadedModel a16(dir / "a16");
  EXPECT_FALSE(a16.has("model.layers.0.mlp.up_proj.input_global_scale"));
  EXPECT_EQ(a16.tensors.size(), 14u * 3 + 7);
}

TEST_F(QuantizeCheckpoint, TheFolderIsWhole) {
  write_tiny_llama(dir / "in");
  const auto before = files_of(dir / "in");
  quantize_checkpoint(dir / "in", dir / "out");
  EXPECT_EQ(files_of(dir / "in"), before);
  const auto after = files_of(dir / "out");
  Names names;
  for (const auto& [name, content] : after) names.push_back(name);
  EXPECT_EQ(names, (Names{"README.md", "assets/LICENSE", "config.json", "hf_quant_config.json",
                          "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json",
                          "modeling_llama.py", "nvfp4.files.json", "tokenizer.json"}));
  for (const char* name : {"assets/LICENSE", "modeling_llama.py", "tokenizer.json"})
    EXPECT_EQ(after.at(name), before.at(name));

  const Json config = Json::parse(after.at("config.json"));
  EXPECT_EQ(config["quantization_config"]["quant_algo"], "NVFP4");
  EXPECT_TRUE(after.at("config.json")
                  .starts_with(
                      before.at("config.json").substr(0, before.at("config.json").rfind("1e-05"))));
  const Json side = Json::parse(after.at("hf_quant_config.json"));
  EXPECT_EQ(side["quantization"]["exclude_modules"], config["quantization_config"]["ignore"]);

  const LoadedModel out(dir / "out");
  const Json index = Json::parse(after.at("model.safetensors.index.json"));
  std::uint64_t total = 0;
  for (const auto& [name, t] : out.tensors) total += t.bytes.size();
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), out.tensors.size());
  for (const auto& [name, shard] : index["weight_map"].items())
    EXPECT_NE(safetensors::File::open(dir / "out" / shard.get<std::string>()).find(name), nullptr);
}

TEST_F(QuantizeCheckpoint, FollowsTheLinksOfAHubCache) {
  const fs::path snapshot = dir / "models--a--b" / "snapshots" / "0123";
  write_tiny_llama(dir / "plain");
  fs::create_directories(dir / "models--a--b" / "blobs");
  fs::create_directories(snapshot / "assets");
  for (const auto& [name, content] : files_of(dir / "plain")) {
    const std::string blob = std::to_string(std::hash<std::string>{}(name));
    write_text(dir / "models--a--b" / "blobs" / blob, content);
    const fs::path up = name.starts_with("assets/") ? "../../../blobs" : "../../blobs";
    fs::create_symlink(up / blob, snapshot / name);
  }
  quantize_checkpoint(dir / "plain", dir / "a");
  quantize_checkpoint(snapshot, dir / "b");
  auto plain = files_of(dir / "a"), linked = files_of(dir / "b");
  for (auto* files : {&plain, &linked}) files->erase("README.md");  // which names the hub's model
  EXPECT_EQ(plain, linked);
  for (const auto& entry : fs::recursive_directory_iterator(dir / "b"))
    EXPECT_FALSE(entry.is_symlink()) << entry.path();
}

TEST_F(QuantizeCheckpoint, TheNumberOfThreadsChangesNothing) {
  write_model(dir / "in",
              {{random_tensor("a.q_proj.weight", {3008, 512}),
                random_tensor("a.k_proj.weight", {1008, 512}, safetensors::DType::f32),
                random_tensor("b.o_proj.weight", {784, 1040}, safetensors::DType::f16),
                random_tensor("embed.weight", {2000, 512})}},
              "{}");
  QuantizeReport reports[2];
  const int before = threads();
  for (const int n : {1, 3}) {
    set_threads(n);
    reports[n / 2] = quantize_checkpoint(dir / "in", dir / std::to_string(n));
    EXPECT_EQ(reports[n / 2].threads, n);
  }
  set_threads(before);
  EXPECT_EQ(files_of(dir / "1"), files_of(dir / "3"));
  ASSERT_EQ(reports[0].tensors.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(reports[0].tensors[i].squared_error, reports[1].tensors[i].squared_error);
    EXPECT_EQ(reports[0].tensors[i].squared_norm, reports[1].tensors[i].squared_norm);
  }
}

TEST_F(QuantizeCheckpoint, TheReportSaysWhatWasDoneAndWhy) {
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out", {"--ignore", "*.o_proj", "typo"});
  const LoadedModel in(dir / "in");
  std::int64_t last = 0;
  options.progress = [&](const Progress& p) {
    EXPECT_EQ(p.tensors_done, last + 1);
    last = p.tensors_done;
    EXPECT_EQ(p.tensors_total, 21);
  };
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_EQ(last, 21);
  const LoadedModel out(dir / "out");
  std::uint64_t before = 0, after = 0;
  ASSERT_EQ(report.tensors.size(), 21u);
  for (const TensorReport& t : report.tensors) {
    before += t.bytes_before;
    after += t.bytes_after;
    EXPECT_EQ(t.action == "kept", !t.reason.empty()) << t.name;
    EXPECT_EQ(t.bytes_before, in.at(t.name).bytes.size());
    if (t.name.ends_with("o_proj.weight")) {
      EXPECT_EQ(t.reason, "--ignore *.o_proj");
    }
    if (t.action != "quantized") continue;
    double norm = 0, error = 0;
    const MatrixView x = in.matrix(t.name);
    const std::string module = t.name.substr(0, t.name.size() - 7);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const auto byte = std::to_integer<std::uint8_t>(
            out.at(t.name).bytes[static_cast<std::size_t>((r * x.cols + c) / 2)]);
        const E2M1 code{static_cast<std::uint8_t>(c % 2 ? byte >> 4 : byte & 15)};
        const E4M3 scale{std::to_integer<std::uint8_t>(
            out.at(module + ".weight_scale")
                .bytes[static_cast<std::size_t>((r * x.cols + c) / 16)])};
        const float decoded =
            code.to_float() * scale.to_float() * out.scalar(module + ".weight_scale_2");
        norm += double{x.at(r, c)} * x.at(r, c);
        error += (double{x.at(r, c)} - decoded) * (double{x.at(r, c)} - decoded);
      }
    EXPECT_NEAR(t.squared_norm, norm, 1e-5 * norm) << t.name;
    EXPECT_NEAR(t.squared_error, error, 1e-4 * error) << t.name;
    EXPECT_LT(error, 0.01 * norm);
  }
  EXPECT_EQ(report.bytes_before, before);
  EXPECT_EQ(report.bytes_after, after);
  EXPECT_GT(report.peak_memory_bytes, 0u);
  EXPECT_FALSE(report.backend.empty());
  ASSERT_EQ(report.warnings.size(), 1u) << report.warnings[0];
  EXPECT_THAT(report.warnings[0], HasSubstr("typo"));
  const Json json = Json::parse(to_json(report));
  EXPECT_EQ(json["tensors"].size(), 21u);
  EXPECT_EQ(json["bytes_after"], after);
}

TEST_F(QuantizeCheckpoint, DryRunTellsTheSizesAndWritesNothing) {
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out", {"--dry-run"});
  const QuantizeReport dry = quantize_checkpoint(options);
  EXPECT_TRUE(dry.dry_run);
  EXPECT_FALSE(fs::exists(dir / "out"));
  options.dry_run = false;
  const QuantizeReport wet = quantize_checkpoint(options);
  EXPECT_EQ(dry.bytes_before, wet.bytes_before);
  EXPECT_EQ(dry.bytes_after, wet.bytes_after);
}

/// Lists of modules would exclude what such a name matches as a pattern.
TEST_F(QuantizeCheckpoint, NamesLikePatternsAreNotListed) {
  const std::string other = "model.layers.0.mlp.up_proj";
  std::vector<std::string> modules = {"re:.*", "a\nlm_head"};
  for (const char c : std::string("*?[]\\+(){}|^$")) modules.push_back(std::string("a") + c);
  for (const std::string& module : modules) {
    const auto run = [&](const std::string& format, const std::vector<std::string>& kept) {
      fs::remove_all(dir / "out");
      auto options = quantize_options(dir / "in", dir / "out", {"--format", format});
      options.ignore = kept;
      quantize_checkpoint(options);
    };
    // A vector is no linear layer, and lists have it nevertheless.
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{64, 40}, {64}}) {
      write_model(
          dir / "in",
          {{random_tensor(module + ".weight", shape), random_tensor(other + ".weight", {64, 64})}},
          kLlamaConfig);
      for (const char* format : {"modelopt", "compressed-tensors"}) {
        expect_error<UnsupportedError>([&] { run(format, {}); },
                                       {"in: module '", "as a pattern", "comfyui"});
        EXPECT_FALSE(fs::exists(dir / "out"));
      }
      run("comfyui", {});  // has no list
    }
    write_model(
        dir / "in",
        {{random_tensor(module + ".weight", {64, 64}), random_tensor(other + ".weight", {64, 64})}},
        kLlamaConfig);
    run("modelopt", {other});  // no list has names of what is quantized in one way
  }
}

}  // namespace nvfp4::quantize_checkpoint_test
