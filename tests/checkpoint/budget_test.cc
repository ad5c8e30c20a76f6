#include "checkpoint/recipe/budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "checkpoint/expect_error.h"
#include "checkpoint/statistics_file.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/error.h"

/// Layers chosen for a number of bits.
namespace nvfp4 {
namespace {

namespace fs = std::filesystem;
using checkpoint::Allocation;
using checkpoint::Alternatives;

/// The least error of every choice within the budget.
double exact(const std::vector<Alternatives>& layers, std::size_t from, std::uint64_t budget) {
  if (from == layers.size()) return 0;
  double best = INFINITY;
  for (const auto& a : layers[from])
    if (a.bytes <= budget)
      best = std::min(best, a.error + exact(layers, from + 1, budget - a.bytes));
  return best;
}

TEST(Budget, IsWithinOneStepOfTheBestChoiceAndOfItsBound) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<Alternatives> layers(1 + random() % 6);
    double step = 0;
    std::uint64_t most = 0;
    for (Alternatives& all : layers) {
      all.resize(1 + random() % 4);
      for (auto& a : all) a = {1 + random() % 40, static_cast<double>(random() % 1000)};
      const auto [low, high] = std::ranges::minmax_element(
          all, {}, [](const checkpoint::Alternative& a) { return a.error; });
      step = std::max(step, high->error - low->error);
      most += std::ranges::max_element(all, {}, &checkpoint::Alternative::bytes)->bytes;
    }
    const std::uint64_t least = checkpoint::least_bytes(layers);
    for (std::uint64_t budget = least; budget <= most; budget += 1 + (most - least) / 5) {
      const Allocation found = checkpoint::allocate(layers, budget);
      const double best = exact(layers, 0, budget);
      double error = 0;
      std::uint64_t bytes = 0;
      for (std::size_t l = 0; l < layers.size(); ++l) {
        error += layers[l][found.chosen[l]].error;
        bytes += layers[l][found.chosen[l]].bytes;
      }
      EXPECT_EQ(bytes, found.bytes);
      EXPECT_NEAR(error, found.error, 1e-6);
      EXPECT_LE(bytes, budget);
      EXPECT_GE(error, best);
      EXPECT_LE(error, best + step);
      EXPECT_LE(found.bound, best + 1e-6);
    }
  }
}

class Bits : public ::testing::Test {
 protected:
  Bits() { write_tiny_llama(in_); }
  QuantizeReport run(double bits, const std::string& format = "modelopt") {
    auto options = quantize_options(in_, out_);
    options.bits = bits;
    options.format = format;
    options.overwrite = true;
    return quantize_checkpoint(options);
  }
  /// Of the weights that are quantized without a recipe.
  double used(const QuantizeReport& report) const {
    auto options = quantize_options(in_, dir_ / "dry");
    options.dry_run = true;
    const QuantizeReport all = quantize_checkpoint(options);
    std::set<std::string> names;
    for (const TensorReport& t : all.tensors)
      if (t.action == "quantized") names.insert(t.name);
    double bytes = 0, elements = 0;
    for (const TensorReport& t : report.tensors) {
      const std::string module = t.name.substr(0, t.name.rfind('.'));
      if (!names.contains(t.name)) continue;
      bytes += static_cast<double>(t.bytes_after);
      elements += static_cast<double>(element_count(t.shape));
    }
    return 8 * bytes / elements;
  }
  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out";
};

TEST_F(Bits, AreNotExceededAndMoreOfThemCostLessError) {
  double last = INFINITY;
  for (const double bits : {5.0, 6.0, 8.0, 12.0, 16.0}) {
    const QuantizeReport report = run(bits);
    EXPECT_LE(used(report), bits);
    EXPECT_GE(used(report), bits - 1.5);
    double error = 0;
    for (const TensorReport& t : report.tensors) error += t.squared_error;
    EXPECT_LT(error, last);
    last = error;
    EXPECT_FALSE(report.curve.empty());
    EXPECT_GT(report.curve.front().error, 0);
    EXPECT_EQ(report.curve.back().error, 0);
  }
  EXPECT_EQ(last, 0) << "all of it is kept";
}

TEST_F(Bits, ChooseTheSameInEveryRunAndWhatLoadersFuseTogether) {
  run(6);
  const auto files = files_of(out_);
  run(6);
  EXPECT_EQ(files_of(out_), files);
  const LoadedModel out(out_);
  for (const int layer : {0, 1}) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    EXPECT_EQ(out.at(p + "self_attn.q_proj.weight").dtype,
              out.at(p + "self_attn.k_proj.weight").dtype);
    EXPECT_EQ(out.at(p + "mlp.gate_proj.weight").dtype, out.at(p + "mlp.up_proj.weight").dtype);
  }
  auto options = quantize_options(in_, dir_ / "ranks");
  options.bits = 6;
  options.ranks = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) quantize_checkpoint(options);
  EXPECT_EQ(files_of(dir_ / "ranks"), files);
}

TEST_F(Bits, CountWhatCalibrationSaw) {
  write_statistics(dir_ / "s.safetensors", llama_statistics());
  auto options = quantize_options(in_, out_);
  options.bits = 6;
  options.statistics = dir_ / "s.safetensors";
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_LE(used(report), 6);
  EXPECT_EQ(report.recipe, "the choice");
}

TEST_F(Bits, SizesAreOfTheWholeOutput) {
  auto options = quantize_options(in_, out_);
  options.size = 100;
  std::uint64_t least = 0;
  try {
    quantize_checkpoint(options);
    FAIL();
  } catch (const ValueError& e) {
    const std::string text = e.what();
    least = std::stoull(text.substr(text.find("the least is ") + 13));
  }
  for (const std::uint64_t size : {least, least + 20'000}) {
    options.size = size;
    options.overwrite = true;
    quantize_checkpoint(options);
    std::uint64_t bytes = 0;
    for (const auto& [name, content] : files_of(out_)) bytes += content.size();
    EXPECT_LE(bytes, size);
  }
  EXPECT_EQ(size_from_text("24GiB"), 24ull << 30);
  EXPECT_EQ(size_from_text("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(size_from_text("7"), 7u);
  for (const char* text : {"", "GB", "-1", "1 GBit", "1e30 GB", "nan"})
    EXPECT_THROW(size_from_text(text), ValueError) << text;
}

TEST_F(Bits, ThatCannotBeAreRefused) {
  expect_error<ValueError>([&] { run(4.4); }, {"bits = 4.4, must be from 4.5 to 16"});
  expect_error<ValueError>([&] { run(4.5); }, {"bits = 4.5: the least is 4.5"});
  auto options = quantize_options(in_, out_);
  options.bits = 6;
  options.recipe = "mlp";
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"recipe"});
  options.recipe.reset();
  options.size = 1;
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"bits and size"});
}

}  // namespace
}  // namespace nvfp4
