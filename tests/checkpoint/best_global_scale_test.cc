#include <gtest/gtest.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/expect_quantized.h"
#include "checkpoint/loaded_folder.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/choose_global_scale.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"

namespace nvfp4::best_global_scale_test {
namespace {

using Names = std::vector<std::string>;

/// A fused group in two shards, many chunks, and weights enough for both choices.
std::vector<Names> write_weights(const std::filesystem::path& folder) {
  std::vector<Names> groups = {{"a.self_attn.q_proj", "a.self_attn.k_proj", "a.self_attn.v_proj"}};
  std::vector<TestTensor> first = {random_tensor("a.self_attn.q_proj.weight", {704, 1040}),
                                   random_tensor("a.self_attn.k_proj.weight", {64, 1040}),
                                   random_tensor("norm.weight", {64})},
                          second = {random_tensor("a.self_attn.v_proj.weight", {64, 1040},
                                                  safetensors::DType::f32)};
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::to_string(i) + ".o_proj";
    second.push_back(random_tensor(name + ".weight", {16, 64 + 16 * i}));
    groups.push_back({name});
  }
  write_model(folder, {first, second}, "{}");
  return groups;
}

GlobalScale chosen(const LoadedModel& in, const Names& group) {
  std::vector<MatrixView> views;
  for (const std::string& name : group) views.push_back(in.matrix(name + ".weight"));
  return choose_global_scale(views);
}

TEST(BestGlobalScale, IsWhatChooseGlobalScaleGivesForTheWholeGroup) {
  const TempDir dir;
  const std::vector<Names> groups = write_weights(dir / "in");
  const LoadedModel in(dir / "in");
  for (const int n : {1, 3}) {
    set_threads(n);
    auto options = quantize_options(dir / "in", dir / "out");
    options.best_global_scale = options.overwrite = true;
    quantize_checkpoint(options);
    const LoadedModel out(dir / "out");
    int wider = 0;
    for (const Names& group : groups) {
      const GlobalScale global = chosen(in, group);
      expect_quantized(in, out, group, Quantizer::mse, global);
      wider += global.multiplier ==
               GlobalScale::from_amax(amax_of(in, group), Quantizer::max).multiplier;
    }
    EXPECT_GT(wider, 0);
    EXPECT_LT(wider, static_cast<int>(groups.size()));
  }
  set_threads(0);
}

TEST(BestGlobalScale, LosesNothingInAnyWeight) {
  const TempDir dir;
  write_weights(dir / "in");
  auto options = quantize_options(dir / "in", dir / "plain");
  const QuantizeReport plain = quantize_checkpoint(options);
  options.output = dir / "best";
  options.best_global_scale = true;
  const QuantizeReport best = quantize_checkpoint(options);
  int smaller = 0;
  for (std::size_t i = 0; i < best.tensors.size(); ++i) {
    const TensorReport &a = best.tensors[i], &b = plain.tensors[i];
    if (a.name.find("o_proj") == std::string::npos) continue;  // q, k, v are one group
    EXPECT_LE(a.squared_error, b.squared_error) << a.name;
    smaller += a.squared_error < b.squared_error;
  }
  EXPECT_GT(smaller, 0);
}

TEST(BestGlobalScale, IsOfMseAlone) {
  const TempDir dir;
  write_weights(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  options.best_global_scale = true;
  for (const Quantizer other : {Quantizer::max, Quantizer::four_over_six}) {
    options.quantizer = other;
    expect_error<ValueError>([&] { quantize_checkpoint(options); },
                             {"best_global_scale", quantizer_name(other), "mse"});
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(BestGlobalScale, IsNotResumedWithout) {
  const TempDir dir;
  write_weights(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  options.best_global_scale = true;
  quantize_checkpoint(options);
  options.resume = true;
  EXPECT_EQ(quantize_checkpoint(options).shards_reused, 2);
  options.best_global_scale = false;
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"resume"});
}

TEST(BestGlobalScale, AnInterruptedRunGoesOnWithItAlone) {
  const TempDir dir;
  write_weights(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  options.best_global_scale = true;
  options.progress = [](const Progress& p) {
    if (p.tensors_done > 5) throw IoError("enough");  // the first shard has three
  };
  expect_error<IoError>([&] { quantize_checkpoint(options); }, {"enough"});
  options.progress = {};
  options.resume = true;
  options.best_global_scale = false;
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"options of the interrupted run differ", "best_global_scale"});
  options.best_global_scale = true;
  EXPECT_EQ(quantize_checkpoint(options).shards, 2);
}

}  // namespace
}  // namespace nvfp4::best_global_scale_test
