#include "checkpoint/checkpoints.h"

/// LoRA adapters, merged while a model is quantized.
namespace nvfp4::merge_test {

using nlohmann::json;
using safetensors::DType;

const std::string kDown = "model.layers.0.mlp.down_proj", kQ = "model.layers.1.self_attn.q_proj",
                  kHead = "lm_head";

class Merge : public ::testing::Test {
 protected:
  struct Part {
    std::string module;
    std::int64_t rows, cols, rank;
  };

  void write_adapter(const fs::path& folder, const std::vector<Part>& parts,
                     const json& changes = json::object()) {
    std::vector<TestTensor> more;
    fs::create_directories(folder);
    json config = {{"peft_type", "LORA"}, {"r", 4},
                   {"lora_alpha", 8},     {"bias", "none"},
                   {"use_dora", false},   {"modules_to_save", nullptr}};
    config.update(changes);
    for (const Part& p : parts) {
      const std::string name = "base_model.model." + p.module;
      more.push_back(random_tensor(name + ".lora_A.weight", {p.rank, p.cols}, DType::f32));
      more.push_back(random_tensor(name + ".lora_B.weight", {p.rows, p.rank}, DType::bf16));
    }
    write_shard(folder / "adapter_model.safetensors", more);
    write_text(folder / "adapter_config.json", config.dump());
  }

  static std::vector<float> values(const LoadedModel& model, const std::string& name) {
    const MatrixView m = model.matrix(name);
    std::vector<float> all;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c) all.push_back(m.at(r, c));
    return all;
  }

  /// The same model with the adapter merged by other means, in FP32.
  void merge_by_hand(const fs::path& in, const fs::path& out, const std::vector<Part>& parts,
                     const std::vector<std::pair<fs::path, float>>& adapters) {
    fs::copy(in, out, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(in)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = safetensors::File::open(entry.path());
      std::vector<TestTensor> tensors;
      for (const auto& t : file.tensors()) {
        TestTensor& tensor = tensors.emplace_back();
        tensor.spec = {t.name, t.dtype, t.shape};
        tensor.bytes.resize(t.bytes);
        file.read(t, 0, tensor.bytes);
        for (const Part& p : parts)
          if (t.name == p.module + ".weight") add(tensor, p, LoadedModel(in), adapters);
      }
      fs::remove(out / entry.path().filename());
      write_shard(out / entry.path().filename(), tensors);
    }
  }

  static void add(TestTensor& tensor, const Part& p, const LoadedModel& model,
                  const std::vector<std::pair<fs::path, float>>& adapters) {
    std::vector<float> w = values(model, tensor.spec.name);
    for (const auto& [folder, scale] : adapters) {
      const LoadedModel adapter(folder);
      const std::string name = "base_model.model." + p.module;
      const auto a = values(adapter, name + ".lora_A.weight"),
                 b = values(adapter, name + ".lora_B.weight");
      for (std::int64_t r = 0; r < p.rows; ++r)
        for (std::int64_t c = 0; c < p.cols; ++c) {
          float sum = 0;
          for (std::int64_t k = 0; k < p.rank; ++k)
            sum += b[static_cast<std::size_t>(r * p.rank + k)] * scale *
                   a[static_cast<std::size_t>(k * p.cols + c)];
          w[static_cast<std::size_t>(r * p.cols + c)] += sum;
        }
    }
    tensor.spec.dtype = DType::f32;
    tensor.bytes = encode(w, DType::f32);
  }

  QuantizeReport run(const std::vector<std::string>& adapters, const std::string& out = "out") {
    auto options = quantize_options(in_, dir_ / out, {"--overwrite"});
    options.merge = adapters;
    return quantize_checkpoint(options);
  }

  /// The tensors of out and of what the model that was merged by hand becomes.
  void expect_same(const std::vector<Part>& parts,
                   const std::vector<std::pair<fs::path, float>>& adapters) {
    merge_by_hand(in_, dir_ / "merged", parts, adapters);
    quantize_checkpoint(dir_ / "merged", dir_ / "expected");
    const LoadedModel out(dir_ / "out"), expected(dir_ / "expected");
    ASSERT_EQ(out.tensors.size(), expected.tensors.size());
    for (const auto& [name, tensor] : expected.tensors) {
      if (name == "lm_head.weight") continue;
      EXPECT_EQ(out.at(name).bytes, tensor.bytes) << name;
    }
  }

  void SetUp() override { write_tiny_llama(in_); }

  const TempDir dir_;
  const fs::path in_ = dir_ / "in", lora_ = dir_ / "lora";
  const std::vector<Part> parts_ = {{kDown, 64, 128, 4}, {kQ, 64, 64, 4}};
};

TEST_F(Merge, BytesAreThoseOfMergingInFp32) {
  write_adapter(lora_, parts_);
  run({lora_.string()});
  expect_same(parts_, {{lora_, 2.0f}});
  quantize_checkpoint(in_, dir_ / "without");
  const LoadedModel out(dir_ / "out"), without(dir_ / "without");
  EXPECT_NE(out.at(kDown + ".weight").bytes, without.at(kDown + ".weight").bytes);
  EXPECT_EQ(out.at("model.layers.1.mlp.down_proj.weight").bytes,
            without.at("model.layers.1.mlp.down_proj.weight").bytes);
  const json config = json::parse(read_text(dir_ / "out" / "config.json"));
  EXPECT_EQ(config["nvfp4_cpp"]["merge"].size(), 1u);
  EXPECT_THAT(read_text(dir_ / "out" / "README.md"), HasSubstr("--merge lora"));
}

TEST_F(Merge, SeveralAreAddedWithTheirWeights) {
  write_adapter(lora_, parts_);
  write_adapter(dir_ / "other", {parts_[0]}, {{"lora_alpha", 4}, {"use_rslora", true}});
  run({lora_.string() + "=0.5", (dir_ / "other").string() + "=-3"});
  merge_by_hand(in_, dir_ / "half", parts_, {{lora_, 1.0f}});
  std::vector<std::pair<fs::path, float>> both = {{lora_, 1.0f}, {dir_ / "other", -6.0f}};
  const LoadedModel out(dir_ / "out");
  merge_by_hand(in_, dir_ / "merged", {parts_[0]}, both);
  quantize_checkpoint(dir_ / "merged", dir_ / "expected");
  EXPECT_EQ(out.at(kDown + ".weight").bytes,
            LoadedModel(dir_ / "expected").at(kDown + ".weight").bytes);
  quantize_checkpoint(dir_ / "half", dir_ / "expected-half");
  EXPECT_EQ(out.at(kQ + ".weight").bytes,
            LoadedModel(dir_ / "expected-half").at(kQ + ".weight").bytes);
}

TEST_F(Merge, RanksAndAlphasMayBeOfEachModule) {
  write_adapter(lora_, {{kDown, 64, 128, 4}, {kQ, 64, 64, 2}},
                {{"rank_pattern", {{"q_proj", 2}}}, {"alpha_pattern", {{"q_proj", 4}}}});
  run({lora_.string()});
  expect_same({{kDown, 64, 128, 4}, {kQ, 64, 64, 2}}, {{lora_, 2.0f}});
}

TEST_F(Merge, WhatIsKeptBecomesBf16WithIt) {
  write_adapter(lora_, {{kHead, 96, 64, 4}});
  const QuantizeReport report = run({lora_.string()});
  merge_by_hand(in_, dir_ / "merged", {{kHead, 96, 64, 4}}, {{lora_, 2.0f}});
  const auto merged = values(LoadedModel(dir_ / "merged"), "lm_head.weight");
  EXPECT_EQ(LoadedModel(dir_ / "out").at("lm_head.weight").bytes, encode(merged, DType::bf16));
  for (const TensorReport& t : report.tensors)
    EXPECT_EQ(t.action == "merged", t.name == "lm_head.weight") << t.name;
}

TEST_F(Merge, AdapterWithoutTensorsIsAnError) {
  write_adapter(lora_, {});
  expect_error<FormatError>([&] { run({lora_.string()}); },
                            {"adapter_model.safetensors: holds no tensors"});
}

/// Twenty thousand patterns, compiled for each module, would take many seconds.
TEST_F(Merge, TimeGrowsWithPatternsAlone) {
  std::vector<Part> parts;
  for (const int layer : {0, 1})
    for (const char* name : {"q_proj", "o_proj"})
      parts.push_back({fmt::format("model.layers.{}.self_attn.{}", layer, name), 64, 64, 2});
  json patterns = json::object();
  for (int i = 0; i < 20'000; ++i) patterns[fmt::format("layers.{}.self_attn.k_proj", i)] = 8;
  patterns["self.attn.[qo]_proj"] = 2;
  write_adapter(lora_, parts, {{"rank_pattern", patterns}});
  run({lora_.string()});
  patterns.erase("self.attn.[qo]_proj");
  patterns["self.attn.q.proj"] = 2;  // a dot stands for any character
  write_adapter(lora_, parts, {{"rank_pattern", patterns}});
  expect_error<FormatError>([&] { run({lora_.string()}); }, {"o_proj has rank 2", "says 4"});
}

}  // namespace nvfp4::merge_test
