// Quantization that knows what calibration saw of the layers' inputs.
#include "checkpoint/base/json.h"
#include "checkpoint/gguf/gguf_bytes.h"
#include "checkpoint/statistics_file.h"
#include "nvfp4/quantize.h"
#include "testing.h"

namespace nvfp4::weighted_test {

struct Folders {
  TempDir dir;
  Folders() { write_tiny_llama(dir / "in"); }
  QuantizeCheckpointOptions options(const std::string& out = "out") const {
    return quantize_options(dir / "in", dir / out, {"--statistics", dir / "stats.safetensors"});
  }
};

/// A module of the output, held against quantize() of the input with `weights`.
void expect_quantized(const LoadedModel& in, const LoadedModel& out, const std::string& module,
                      const std::vector<float>& weights) {
  const float multiplier = out.scalar(module + ".weight_scale_2");
  const float amax_of_group = multiplier * 6 * 256;
  const GlobalScale global = GlobalScale::from_amax(amax_of_group, Quantizer::mse);
  EXPECT_EQ(global.multiplier, multiplier);
  const QuantizedMatrix expected =
      quantize(in.matrix(module + ".weight"),
               {.quantizer = Quantizer::mse, .global = {&global, 1}, .weights = weights});
  const auto& codes = out.at(module + ".weight");
  const auto& scales = out.at(module + ".weight_scale");
  EXPECT_EQ(std::memcmp(codes.bytes.data(), expected.codes(), codes.bytes.size()), 0) << module;
  EXPECT_EQ(std::memcmp(scales.bytes.data(), expected.scales(), scales.bytes.size()), 0) << module;
}

TEST(WeightedQuantization, ScalesAreTheOptimumOfTheWeightedError) {
  const Folders f;
  auto statistics = llama_statistics();
  statistics["model.layers.0.mlp.down_proj"].amax = 5376;
  write_statistics(f.dir / "stats.safetensors", statistics);
  const QuantizeReport report = quantize_checkpoint(f.options());
  EXPECT_EQ(report.method, "weighted");
  const LoadedModel in(f.dir / "in"), out(f.dir / "out");
  for (const auto& [module, s] : statistics) expect_quantized(in, out, module, s.diagonal);
  EXPECT_EQ(out.scalar("model.layers.0.mlp.down_proj.input_scale"), 2.0f) << "the amax counts";
  EXPECT_EQ(Json::parse(read_text(f.dir / "out" / "config.json"))["nvfp4_cpp"]["scale_search"],
            "weighted");
}

TEST(WeightedQuantization, WeightsWithoutStatisticsAreQuantizedByMse) {
  const Folders f;
  auto statistics = llama_statistics();
  const std::string unseen = "model.layers.1.mlp.down_proj", zero = "model.layers.0.mlp.down_proj",
                    missing = "model.layers.1.self_attn.o_proj";
  statistics[unseen].count = 0;
  statistics[zero].diagonal.assign(128, 0.0f);
  statistics.erase(missing);
  write_statistics(f.dir / "stats.safetensors", statistics);
  const QuantizeReport report = quantize_checkpoint(f.options());
  const std::string file = (f.dir / "stats.safetensors").string();
  EXPECT_EQ(report.warnings,
            (std::vector<std::string>{
                file + ": 1 of 14 weights are not in it, they are quantized as by mse: " + missing,
                file + ": 1 of 14 weights got no token, they are quantized as by mse: " + unseen}));
  const LoadedModel in(f.dir / "in"), out(f.dir / "out");
  for (const std::string& module : {unseen, zero, missing}) expect_quantized(in, out, module, {});
}

TEST(WeightedQuantization, AMethodSaysWhatItNeeds) {
  const Folders f;
  auto options = f.options();
  options.statistics.reset();
  options.method = "weighted";
  expect_error<ValueError>(
      [&] { quantize_checkpoint(options); },
      {"method = weighted", "mean square of each input channel", "--statistics"});
  options.method = "best";
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"method = 'best'", "four_over_six", "weighted"});
  // One that needs nothing takes the amaxes alone.
  write_statistics(f.dir / "stats.safetensors", llama_statistics());
  options = f.options();
  options.method = "mse";
  quantize_checkpoint(options);
  const LoadedModel in(f.dir / "in"), out(f.dir / "out");
  expect_quantized(in, out, "model.layers.0.self_attn.o_proj", {});
}

TEST(WeightedQuantization, StatisticsOfAnotherModelAreRefused) {
  const Folders f;
  const fs::path file = f.dir / "stats.safetensors";
  const auto refused = [&](std::initializer_list<std::string_view> parts) {
    expect_error<ValueError>([&] { quantize_checkpoint(f.options()); }, parts);
    EXPECT_FALSE(fs::exists(f.dir / "out"));
  };
  auto statistics = llama_statistics();
  statistics["model.layers.0.mlp.up_proj"].diagonal.resize(48);
  write_statistics(file, statistics);
  refused({"stats.safetensors", "model.layers.0.mlp.up_proj", "48", "64", "another model"});
  write_statistics(file, {{"transformer.h.0.attn", {{1, 2}}}});
  refused({"none of the 14 weights", "another model"});
}

TEST(WeightedQuantization, BrokenStatisticsAreRefused) {
  const Folders f;
  const fs::path file = f.dir / "stats.safetensors";
  const std::string module = "model.layers.0.mlp.up_proj";
  const auto refused = [&](std::initializer_list<std::string_view> parts) {
    expect_error<FormatError>([&] { quantize_checkpoint(f.options()); }, parts);
  };
  fs::copy_file(f.dir / "in" / "model-00001-of-00003.safetensors", file);
  refused({"no file of statistics", "nvfp4 calibrate"});
  auto statistics = llama_statistics();
  write_statistics(file, statistics, {{"nvfp4_statistics", "1"}, {"same_input", "[]"}});
  refused({"same_input", "object"});
  statistics[module].diagonal[3] = std::numeric_limits<float>::quiet_NaN();
  write_statistics(file, statistics);
  refused({module + ".diag", "nan", "finite"});
  statistics[module].diagonal[3] = -1;
  write_statistics(file, statistics);
  refused({"-1", "negative"});
  statistics[module].diagonal[3] = 1;
  statistics[module].count = -2;
  write_statistics(file, statistics);
  refused({module + ".count", "tokens"});
  statistics[module].count = 2;
  statistics[module].amax = std::numeric_limits<float>::infinity();
  write_statistics(file, statistics);
  refused({module + ".amax", "finite"});
  statistics[module].amax = 2;
  statistics[module].triangle = {1, 2, 3};
  write_statistics(file, statistics);
  refused({module + ".gram", "[3]", "2080"});
  write_statistics(file, statistics, {{"nvfp4_statistics", "2"}});
  expect_error<UnsupportedError>([&] { quantize_checkpoint(f.options()); }, {"version 2"});
}

gguf::TensorSpec f32_spec(const std::string& name, std::vector<std::int64_t> shape) {
  return {name, gguf::find_type(gguf::kF32), std::move(shape)};
}

void write_imatrix(const fs::path& path, const std::map<std::string, std::vector<float>>& sums,
                   const std::map<std::string, std::vector<float>>& counts) {
  std::vector<gguf::TensorSpec> specs;
  std::vector<std::vector<float>> values;
  for (const auto& [name, v] : sums) {
    const auto& count = counts.at(name);
    const auto n = static_cast<std::int64_t>(count.size());
    specs.push_back(f32_spec(name + ".in_sum2", {n, static_cast<std::int64_t>(v.size()) / n}));
    values.push_back(v);
    specs.push_back(f32_spec(name + ".counts", {n, 1}));
    values.push_back(count);
  }
  gguf::Writer writer(path, {{"general.type", gguf::new_text("imatrix")}}, specs);
  for (std::size_t i = 0; i < values.size(); ++i)
    writer.write(i, 0, std::as_bytes(std::span(values[i])));
  writer.commit();
}

TEST(WeightedQuantization, AnImportanceMatrixOfLlamaCppWeightsToo) {
  const Folders f;
  const fs::path file = f.dir / "imatrix.gguf";
  const auto statistics = llama_statistics();
  std::map<std::string, std::vector<float>> sums, counts;
  const std::map<std::string, std::string> names = {
      {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"}, {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [module, s] : statistics) {
    const std::string name =
        fmt::format("blk.{}.{}.weight", module.substr(13, 1), names.at(module.substr(15)));
    sums[name] = s.diagonal;
    counts[name] = {512};
  }
  counts["blk.1.ffn_down.weight"] = {0};
  write_imatrix(file, sums, counts);
  auto options = f.options();
  options.statistics = file;
  const QuantizeReport report = quantize_checkpoint(options);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("got no token"));
  const LoadedModel in(f.dir / "in"), out(f.dir / "out");
  for (const auto& [module, s] : statistics)
    expect_quantized(in, out, module,
                     module == "model.layers.1.mlp.down_proj" ? std::vector<float>{} : s.diagonal);

  options.output = f.dir / "other";
  sums["blk.0.ffn_up.weight"][5] = -1;
  write_imatrix(file, sums, counts);
  expect_error<FormatError>([&] { quantize_checkpoint(options); }, {"imatrix.gguf", "-1"});
  sums["blk.0.ffn_up.weight"].resize(32);
  write_imatrix(file, sums, counts);
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"32", "64", "another model"});
  write_imatrix(file, {}, {});
  expect_error<FormatError>([&] { quantize_checkpoint(options); }, {"not an importance matrix"});
  write_text(f.dir / "in" / "config.json", R"({"model_type": "never_heard_of"})");
  write_imatrix(file, {{"a", {1}}}, {{"a", {1}}});
  expect_error<UnsupportedError>([&] { quantize_checkpoint(options); }, {"never_heard_of"});
}

TEST(WeightedQuantization, EachExpertHasItsImportanceMatrix) {
  const TempDir dir;
  std::vector<TestTensor> tensors;
  const std::string layer = "model.layers.0.mlp.experts.";
  for (const char* expert : {"0", "1"})
    tensors.push_back(random_tensor(layer + expert + ".down_proj.weight", {32, 64}));
  write_model(dir / "in", {tensors}, R"({"model_type": "qwen3_moe"})");
  std::vector<float> sums = random_values(128, "sums", 2.0f);
  for (float& x : sums) x = std::abs(x);
  write_imatrix(dir / "i.gguf", {{"blk.0.ffn_down_exps.weight", sums}},
                {{"blk.0.ffn_down_exps.weight", {7, 9}}});
  EXPECT_EQ(quantize_checkpoint(dir / "in", dir / "out", {"--statistics", dir / "i.gguf"}).warnings,
            std::vector<std::string>{});
  const LoadedModel in(dir / "in"), out(dir / "out");
  expect_quantized(in, out, layer + "0.down_proj", {sums.begin(), sums.begin() + 64});
  expect_quantized(in, out, layer + "1.down_proj", {sums.begin() + 64, sums.end()});
}

}  // namespace nvfp4::weighted_test
