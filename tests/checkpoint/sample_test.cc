#include "checkpoint/checkpoints.h"
#include "checkpoint/sample/sample_models.h"

namespace nvfp4::sample_test {

using Shape = std::vector<std::int64_t>;

/// Every tensor's bytes by name, wherever it is stored.
std::map<std::string, std::string> tensors_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = safetensors::File::open(entry.path());
    for (const auto& t : file.tensors()) {
      std::string bytes(t.bytes, '\0');
      file.read(t, 0, std::as_writable_bytes(std::span(bytes)));
      out[t.name] = std::move(bytes);
    }
  }
  return out;
}

SampleOptions options(const fs::path& output, const std::string& arch = "llama") {
  return sample_options(output, {"--arch", arch, "--scale", 1.0 / 64});
}

struct Sample : FolderTest {};

TEST_F(Sample, ThreadsAndShardsChangeNoBytes) {
  SampleOptions o = options(dir / "one");
  o.scale = 1.0 / 32;
  set_threads(1);
  sample_checkpoint(o);
  set_threads(3);
  o.output = dir / "three";
  o.shards = 3;
  EXPECT_EQ(sample_checkpoint(o).shards, 3);
  set_threads(0);
  const auto one = tensors_of(dir / "one");
  EXPECT_EQ(one.size(), 21u);
  EXPECT_TRUE(one == tensors_of(dir / "three"));

  o.output = dir / "other seed";
  o.seed = 1;
  sample_checkpoint(o);
  EXPECT_NE(one.at("lm_head.weight"), tensors_of(dir / "other seed").at("lm_head.weight"));
  EXPECT_NE(one.at("model.layers.0.mlp.up_proj.weight"),
            one.at("model.layers.1.mlp.up_proj.weight"));
}

TEST_F(Sample, FillsAnyRowsAsItFillsAll) {
  constexpr std::size_t kCols = 33, kRows = 8;
  const checkpoint::SampleWeights weights(7, "w", kCols, 0.02);
  std::vector<std::uint16_t> all(kRows * kCols), part(3 * kCols);
  weights.fill(0, all);
  weights.fill(5, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 5 * kCols));
  EXPECT_FALSE(std::equal(part.begin(), part.end(), all.begin()));
}

TEST_F(Sample, WritesAnExactIndexAndConfig) {
  SampleOptions o = options(dir / "m");
  o.shards = 4;
  o.layers = 1;
  const SampleReport report = sample_checkpoint(o);
  const fs::path path = dir / "m" / "model.safetensors.index.json";
  const auto index = safetensors::parse_index(read_text(path), path.string());
  std::uint64_t bytes = 0, found = 0;
  for (int s = 1; s <= 4; ++s) {
    const std::string name = "model-0000" + std::to_string(s) + "-of-00004.safetensors";
    const auto file = safetensors::File::open(dir / "m" / name);
    EXPECT_FALSE(file.tensors().empty());
    for (const auto& t : file.tensors()) {
      EXPECT_EQ(index.weight_map.at(t.name), name);
      bytes += t.bytes;
      ++found;
    }
  }
  EXPECT_EQ(index.weight_map.size(), found);
  EXPECT_EQ(index.total_size, bytes);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(report.tensors, static_cast<std::int64_t>(found));
  EXPECT_EQ(report.parameters, bytes / 2);
  const auto config = nlohmann::json::parse(read_text(dir / "m" / "config.json"));
  EXPECT_EQ(config.at("architectures"), std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(config.at("num_hidden_layers"), 1);
  EXPECT_EQ(config.at("rope_scaling").at("rope_type"), "llama3");
  EXPECT_TRUE(fs::exists(dir / "m" / "tokenizer_config.json"));
  EXPECT_TRUE(fs::exists(dir / "m" / "generation_config.json"));
}

std::map<std::string, Shape> shapes_of(const checkpoint::SampleModel& model) {
  std::map<std::string, Shape> shapes;
  for (const auto& t : model.tensors) EXPECT_TRUE(shapes.emplace(t.name, t.shape).second) << t.name;
  return shapes;
}

double parameters_of(const checkpoint::SampleModel& model) {
  double sum = 0;
  for (const auto& t : model.tensors) {
    double n = 1;
    for (const auto d : t.shape) n *= static_cast<double>(d);
    sum += n;
  }
  return sum;
}

TEST_F(Sample, LlamaHasTheNamesOf8B) {
  const auto model = checkpoint::sample_model("llama", 32, 1);
  EXPECT_EQ(parameters_of(model), 8030261248.0) << "meta-llama/Llama-3.1-8B";
  const auto shapes = shapes_of(model);
  EXPECT_EQ(shapes.size(), 291u);
  EXPECT_EQ(shapes.at("model.layers.31.self_attn.k_proj.weight"), (Shape{1024, 4096}));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.down_proj.weight"), (Shape{4096, 14336}));
  EXPECT_EQ(shapes.at("lm_head.weight"), (Shape{128256, 4096}));
  EXPECT_EQ(model.config.at("bos_token_id"), 128000);
}

TEST_F(Sample, DeepSeekHasTheNamesOfV3) {
  const auto model = checkpoint::sample_model("deepseek-v3", 61, 1);
  // 671 B, and the multi-token prediction layer with its own embedding and head.
  EXPECT_NEAR(parameters_of(model), 684.49e9, 0.01e9);
  const auto shapes = shapes_of(model);
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_b_proj.weight"), (Shape{24576, 1536}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.kv_a_proj_with_mqa.weight"), (Shape{576, 7168}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.kv_b_proj.weight"), (Shape{32768, 512}));
  EXPECT_EQ(shapes.at("model.layers.2.mlp.gate_proj.weight"), (Shape{18432, 7168}));
  EXPECT_EQ(shapes.at("model.layers.3.mlp.experts.255.down_proj.weight"), (Shape{7168, 2048}));
  EXPECT_EQ(shapes.at("model.layers.3.mlp.gate.e_score_correction_bias"), (Shape{256}));
  EXPECT_EQ(shapes.at("model.layers.61.eh_proj.weight"), (Shape{7168, 14336}));
  EXPECT_EQ(shapes.at("model.layers.61.shared_head.head.weight"), (Shape{129280, 7168}));
  EXPECT_EQ(model.config.at("first_k_dense_replace"), 3);
}

TEST_F(Sample, SmallDeepSeekHasExperts) {
  const auto model = checkpoint::sample_model("deepseek-v3", 2, 1.0 / 64);
  const auto shapes = shapes_of(model);
  EXPECT_TRUE(shapes.contains("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_TRUE(shapes.contains("model.layers.1.mlp.experts.31.up_proj.weight"));
  EXPECT_TRUE(shapes.contains("model.layers.2.enorm.weight"));
  for (const auto& [name, shape] : shapes) EXPECT_EQ(shape.back() % 32, 0) << name;
}

TEST_F(Sample, HasHeavyTailedWeightsAndNormsNearOne) {
  SampleOptions o = options(dir / "m", "deepseek-v3");
  sample_checkpoint(o);
  const auto file = safetensors::File::open(dir / "m" / "model.safetensors");
  const auto values = [&](const char* name) {
    std::vector<double> out;
    const safetensors::TensorInfo* t = file.find(name);
    for (std::size_t i = 0; i + 1 < t->bytes; i += 2) {
      std::uint16_t bits;
      file.read(*t, i, std::as_writable_bytes(std::span(&bits, 1)));
      out.push_back(BF16{bits}.to_float());
    }
    return out;
  };
  double mean = 0, second = 0, fourth = 0;
  const auto w = values("model.layers.0.self_attn.o_proj.weight");
  for (const double v : w) mean += v, second += v * v, fourth += v * v * v * v;
  const auto n = static_cast<double>(w.size());
  EXPECT_NEAR(mean / n, 0, 1e-4);
  EXPECT_NEAR(std::sqrt(second / n), 0.016, 0.004);
  EXPECT_GT(fourth / n / (second / n * second / n), 5) << "a Gaussian has 3";
  for (const double v : values("model.norm.weight")) EXPECT_TRUE(v > 0.2 && v < 4) << v;
  EXPECT_EQ(file.find("model.layers.1.mlp.gate.e_score_correction_bias")->dtype,
            safetensors::DType::f32);
}

TEST_F(Sample, NeedsOverwriteForAFilledFolder) {
  SampleOptions o = options(dir.path());
  o.shards = 9;
  sample_checkpoint(o);
  write_text(dir / "notes.txt", "mine");
  o.shards = 1;
  expect_error<IoError>([&] { sample_checkpoint(o); }, {dir.path().string(), "not empty"});
  EXPECT_TRUE(fs::exists(dir / "model-00009-of-00009.safetensors"));
  o.overwrite = true;
  sample_checkpoint(o);
  EXPECT_FALSE(fs::exists(dir / "model-00009-of-00009.safetensors"));
  EXPECT_EQ(read_text(dir / "notes.txt"), "mine");
  EXPECT_EQ(tensors_of(dir.path()).size(), 21u);
}

TEST_F(Sample, LargerThanTheDisk_IsAnError) {
  SampleOptions o = options(dir / "m");
  o.arch = "llama";
  o.layers = 1000;
  o.scale = 4;  // terabytes
  o.progress = [](const Progress& p) { FAIL() << p.tensor; };
  expect_error<IoError>([&] { sample_checkpoint(o); }, {"disk full", "are free there"});
  EXPECT_FALSE(fs::exists(dir / "m"));
}

TEST_F(Sample, MoreThanAllShardsHold_IsAnError) {
  SampleOptions o = options(dir / "m");
  o.arch = "deepseek-v3";
  o.layers = 1000;
  o.scale = 4;
  expect_error<ValueError>([&] { sample_checkpoint(o); },
                           {"layers = 1000 at scale = 4", "more than 99999 shards hold"});
}

TEST_F(Sample, SizeOfManyLayersIsRight) {
  SampleOptions o = options(dir / "m");
  o.arch = "deepseek-v3";
  o.layers = 12;
  const SampleReport report = sample_checkpoint(o);
  std::uint64_t bytes = 0;
  const auto tensors = tensors_of(dir / "m");
  EXPECT_EQ(report.tensors, static_cast<std::int64_t>(tensors.size()));
  for (const auto& entry : fs::directory_iterator(dir / "m"))
    if (entry.path().extension() == ".safetensors")
      for (const auto file = safetensors::File::open(entry.path()); const auto& t : file.tensors())
        bytes += t.bytes;
  EXPECT_EQ(report.bytes, bytes);
}

TEST_F(Sample, NamesTheArgumentThatIsWrong) {
  const auto rejects = [&](auto change, std::initializer_list<std::string_view> parts) {
    SampleOptions o = options(dir / "m");
    change(o);
    expect_error<ValueError>([&] { sample_checkpoint(o); }, parts);
    EXPECT_FALSE(fs::exists(dir / "m")) << "nothing written";
  };
  rejects([](auto& o) { o.arch = "gpt5"; }, {"arch", "gpt5", "llama"});
  rejects([](auto& o) { o.layers = -1; }, {"layers", "-1"});
  rejects([](auto& o) { o.scale = 100; }, {"scale", "100"});
  rejects([](auto& o) { o.scale = std::nan(""); }, {"scale", "nan"});
  rejects([](auto& o) { o.shards = 22; }, {"shards", "22", "21"});
  rejects([](auto& o) { o.shards = -1; }, {"shards", "-1"});
}

TEST_F(Sample, ReportsProgressUpToTheEnd) {
  SampleOptions o = options(dir / "m");
  Progress last;
  o.progress = [&](const Progress& p) {
    EXPECT_GT(p.bytes_done, last.bytes_done);
    last = p;
  };
  const SampleReport report = sample_checkpoint(o);
  EXPECT_EQ(last.tensors_done, report.tensors);
  EXPECT_EQ(last.bytes_done, report.bytes);
}

}  // namespace nvfp4::sample_test
