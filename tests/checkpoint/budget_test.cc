#include "checkpoint/checkpoints.h"
#include "checkpoint/choose/choose.h"
#include "checkpoint/statistics_file.h"

/// Layers chosen for a number of bits.
namespace nvfp4::budget_test {

using checkpoint::Allocation;
using checkpoint::Alternatives;

/// The least error of every choice within the budget.
double exact(const std::vector<Alternatives>& layers, std::size_t from, checkpoint::Budget budget) {
  if (from == layers.size()) return 0;
  double best = INFINITY;
  for (const auto& a : layers[from])
    if (a.bytes <= budget.bytes && a.slow <= budget.slow)
      best = std::min(
          best, a.error + exact(layers, from + 1, {budget.bytes - a.bytes, budget.slow - a.slow}));
  return best;
}

TEST(Budget, ChoiceIsNearTheBestAndTheBound) {
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
      const Allocation found = checkpoint::allocate(layers, {budget});
      const double best = exact(layers, 0, {budget});
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
      const Allocation least = checkpoint::allocate_exactly(layers, {budget});
      EXPECT_TRUE(least.exact);
      EXPECT_NEAR(least.error, best, 1e-6);
      EXPECT_LE(least.bytes, budget);
    }
  }
}

TEST(Budget, TwoBudgets_RandomLayers_ChoiceIsTheBest) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<Alternatives> layers(1 + random() % 6);
    std::uint64_t most = 0, all_slow = 0;
    for (Alternatives& all : layers) {  // W4A4, W4A16, larger formats
      const std::uint64_t bytes = 1 + random() % 40, slow = 1 + random() % 9;
      const double error = static_cast<double>(random() % 1000);
      all = {{bytes, error + static_cast<double>(random() % 1000)}, {bytes, error, slow}};
      for (int i = 0; i < static_cast<int>(random() % 3); ++i)
        all.push_back(
            {bytes + random() % 40, error * static_cast<double>(random() % 10) / 10, slow});
      most += std::ranges::max_element(all, {}, &checkpoint::Alternative::bytes)->bytes;
      all_slow += slow;
    }
    const std::uint64_t least = checkpoint::least_bytes(layers);
    for (int part = 0; part < 25; ++part) {
      const checkpoint::Budget budget = {least + (most - least) * (part % 5) / 4,
                                         all_slow * (part / 5) / 4};
      const double best = exact(layers, 0, budget);
      const Allocation near = checkpoint::allocate(layers, budget);
      const Allocation found = checkpoint::allocate_exactly(layers, budget);
      EXPECT_TRUE(found.exact);
      EXPECT_NEAR(found.error, best, 1e-6);
      EXPECT_GE(near.error, best - 1e-6);
      EXPECT_LE(near.bound, best + 1e-6);
      for (const Allocation& of : {near, found}) {
        EXPECT_LE(of.bytes, budget.bytes);
        EXPECT_LE(of.slow, budget.slow);
      }
    }
  }
}

/// Layers of sizes and errors that have nothing in common: the worst for a search.
std::vector<Alternatives> layers_of_any_size(std::size_t count, double spread) {
  std::mt19937_64 random(5);
  std::vector<Alternatives> layers(count);
  for (Alternatives& all : layers) {
    const std::uint64_t w = 1'000'000 + random() % 100'000'000;
    const double error =
        static_cast<double>(w) * (1 + spread * static_cast<double>(random() % 100));
    all = {{w * 9 / 16, error}, {w + w / 1000, error * 0.47}, {2 * w, 0}};
  }
  return layers;
}

TEST(Budget, FortyLayersAreChosenExactly) {
  for (const double spread : {1e-5, 1e-3, 1.0}) {
    const auto layers = layers_of_any_size(40, spread);
    const std::uint64_t least = checkpoint::least_bytes(layers);
    for (int part = 1; part < 10; ++part)
      EXPECT_TRUE(checkpoint::allocate_exactly(layers, {least + least * part / 4}).exact) << part;
  }
}

TEST(Budget, SearchLimit_Reached_ReturnsTheBestFound) {
  const auto layers = layers_of_any_size(1000, 1e-5);
  const std::uint64_t budget = checkpoint::least_bytes(layers) * 3 / 2;
  const Allocation hull = checkpoint::allocate(layers, {budget});
  const Allocation found = checkpoint::allocate_exactly(layers, {budget}, 100'000);
  EXPECT_FALSE(found.exact);
  EXPECT_LE(found.error, hull.error);
  EXPECT_EQ(found.bound, hull.bound);
  EXPECT_LE(found.bytes, budget);
}

class Bits : public ::testing::Test {
 protected:
  Bits() { write_tiny_llama(in_); }
  QuantizeReport run(double bits, const std::string& format = "modelopt") {
    auto options = quantize_options(in_, out_, {"--format", format, "--overwrite"});
    options.bits = bits;  // in any range
    return quantize_checkpoint(options);
  }
  /// Returns the bits per weight of the weights that are quantized without a recipe.
  double used(const QuantizeReport& report) const {
    const QuantizeReport all = quantize_checkpoint(in_, dir_ / "dry", {"--dry-run"});
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

TEST_F(Bits, AreNotExceededAndReduceTheError) {
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

TEST_F(Bits, ChooseFusedWeightsTogetherInEveryRun) {
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
  auto options = quantize_options(in_, dir_ / "ranks", {"--bits", 6});
  options.ranks = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) quantize_checkpoint(options);
  EXPECT_EQ(files_of(dir_ / "ranks"), files);
}

TEST_F(Bits, CountWhatCalibrationSaw) {
  write_statistics(dir_ / "s.safetensors", llama_statistics());
  const QuantizeReport report =
      quantize_checkpoint(in_, out_, {"--bits", 6, "--statistics", dir_ / "s.safetensors"});
  EXPECT_LE(used(report), 6);
  EXPECT_EQ(report.recipe, "the choice");
}

std::vector<double> doubles(const std::vector<float>& from) { return {from.begin(), from.end()}; }

/// Returns the squared error of the codes of a folder, times the sum of squares of their channel.
double weighted_loss(const fs::path& in, const fs::path& out, const std::string& module,
                     const std::vector<double>& squares) {
  const LoadedModel before(in), after(out);
  const MatrixView x = before.matrix(module + ".weight");
  const auto& codes = after.at(module + ".weight");
  const auto& scales = after.at(module + ".weight_scale").bytes;
  const bool four = codes.dtype == safetensors::DType::u8;
  double sum = 0;
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const std::int64_t i = r * x.cols + c;
      const auto byte =
          std::to_integer<unsigned>(codes.bytes[static_cast<std::size_t>(four ? i / 2 : i)]);
      const double value =
          four ? double{E2M1{static_cast<std::uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4)}
                            .to_float()} *
                     double{E4M3{
                         std::to_integer<std::uint8_t>(scales[static_cast<std::size_t>(i / 16)])}
                                .to_float()} *
                     double{after.scalar(module + ".weight_scale_2")}
               : double{E4M3{static_cast<std::uint8_t>(byte)}.to_float()} *
                     double{after.scalar(module + ".weight_scale")};
      const double lost = double{x.at(r, c)} - value;
      sum += squares[static_cast<std::size_t>(c)] * lost * lost;
    }
  return sum;
}

TEST_F(Bits, WeighErrorsByWhatTheirChannelSaw) {
  const std::string module = "model.layers.0.self_attn.o_proj";
  write_model(dir_ / "one", {{random_tensor(module + ".weight", {32, 64})}},
              "{\"model_type\": \"llama\"}");
  TestStatistics s = llama_statistics().at(module);
  for (std::size_t k = 0; k < s.diagonal.size(); ++k) s.diagonal[k] *= k % 7 == 0 ? 100.0f : 1.0f;
  s.amax = 2;
  write_statistics(dir_ / "s", {{module, s}});
  auto options = quantize_options(dir_ / "one", out_, {"--statistics", dir_ / "s", "--overwrite"});
  const auto errors_of = [&](double bits) {
    options.bits = bits;
    const QuantizeReport report = quantize_checkpoint(options);
    std::set<double> errors;
    for (const BudgetPoint& p : report.curve) errors.insert(p.error);
    EXPECT_EQ(errors.size(), 3u) << "NVFP4, FP8, BF16";
    return std::vector<double>(errors.begin(), errors.end());
  };
  for (const auto& [bits, place] : {std::pair(5.0, 2u), {9.0, 1u}}) {
    const std::vector<double> errors = errors_of(bits);
    const double loss = weighted_loss(dir_ / "one", out_, module, doubles(s.diagonal));
    EXPECT_NEAR(errors[place], loss, 1e-9 * loss) << bits;
  }
}

class BitsBySensitivity : public Bits {
 protected:
  QuantizeReport chosen(const std::map<std::string, TestStatistics>& statistics, double bits) {
    write_statistics(dir_ / "s", statistics);
    return quantize_checkpoint(in_, out_,
                               {"--bits", bits, "--statistics", dir_ / "s", "--overwrite"});
  }
  static std::map<std::string, TestStatistics> without() {
    std::map<std::string, TestStatistics> all = llama_statistics();
    for (auto& [module, s] : all) s.amax = 2;
    return all;
  }
  /// 1e-3 for all others.
  static std::map<std::string, TestStatistics> with(const std::map<std::string, float>& these) {
    std::map<std::string, TestStatistics> all = without();
    for (auto& [module, s] : all)
      s.sensitivity = {these.contains(module) ? these.at(module) : 1e-3f};
    return all;
  }
  static std::set<std::string> quantized_less(const QuantizeReport& report) {
    std::set<std::string> names;
    for (const TensorReport& t : report.tensors)
      if (t.name.ends_with("_proj.weight") && t.action != "quantized")
        names.insert(t.name.substr(0, t.name.rfind('.')));
    return names;
  }
};

TEST_F(BitsBySensitivity, LayersOfTheLargestSensitivityComeFirst) {
  for (const std::string first :
       {"model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.o_proj",
        "model.layers.1.mlp.down_proj"}) {
    const QuantizeReport report = chosen(with({{first, 1e6f}}), 5.6);
    EXPECT_TRUE(quantized_less(report).contains(first)) << first;
    EXPECT_EQ(report.error_of, "last hidden state");
    EXPECT_TRUE(report.warnings.empty());
  }
}

TEST_F(BitsBySensitivity, ErrorsAreItTimesThoseOfTheOutputs) {
  double sum = 0;
  const double outputs = chosen(without(), 16).curve.front().error;
  const double least = chosen(with({}), 16).curve.front().error;
  for (const auto& [module, s] : without())
    sum += chosen(with({{module, 1.001f}}), 16).curve.front().error - least;
  EXPECT_NEAR(sum, outputs, 1e-4 * outputs);
}

TEST_F(BitsBySensitivity, OneMissing_OutputErrorsCountWithWarning) {
  const QuantizeReport plain = chosen(without(), 6);
  EXPECT_EQ(plain.error_of, "outputs");
  ASSERT_EQ(plain.warnings.size(), 1u);
  EXPECT_THAT(plain.warnings[0],
              HasSubstr("has no sensitivity of 14 of 14 weights: layers are chosen by "
                        "the errors of their outputs: model.layers.0."));
  const auto files = files_of(out_);
  auto one_less = with({{"model.layers.1.self_attn.o_proj", 1e6f}});
  one_less["model.layers.0.mlp.up_proj"].sensitivity.clear();
  const QuantizeReport report = chosen(one_less, 6);
  EXPECT_EQ(report.error_of, "outputs");
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("1 of 14 weights"));
  EXPECT_EQ(quantized_less(report), quantized_less(plain));
  for (std::size_t i = 0; i < plain.curve.size(); ++i)
    EXPECT_EQ(report.curve[i].error, plain.curve[i].error);
  EXPECT_EQ(run(6).error_of, "weights");
}

TEST_F(BitsBySensitivity, ThatIsNoPositiveNumberIsRefused) {
  const std::string module = "model.layers.1.self_attn.v_proj";
  for (const std::vector<float>& wrong :
       std::vector<std::vector<float>>{{0}, {-1}, {NAN}, {INFINITY}, {1, 2}}) {
    auto statistics = with({});
    statistics[module].sensitivity = wrong;
    expect_error<FormatError>([&] { chosen(statistics, 6); }, {module + ".sensitivity", "finite"});
  }
}

TEST_F(Bits, GptqCountsOutputErrorsByGramMatrix) {
  write_llama_grams(dir_ / "grams");
  auto options = quantize_options(in_, out_, {"--statistics", dir_ / "grams", "--method", "gptq"});
  double kept = 0;
  for (const TensorReport& t : quantize_checkpoint(options).tensors) kept += t.output.kept;
  options.bits = 16;
  options.output = dir_ / "chosen";
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_GT(kept, 0);
  EXPECT_NEAR(report.curve.front().error, kept, 1e-9 * kept);
}

class BitsByGptq : public Bits {
 protected:
  /// The errors of all in NVFP4, all in FP8 and all in BF16, of a model that is one layer; the
  /// first two are in out_/4 and out_/8 then.
  std::vector<double> errors_of_one_layer(const fs::path& in) const {
    std::set<double> errors;
    for (const auto& [bits, name] : {std::pair(5.0, "4"), {9.0, "8"}}) {
      auto options = quantize_options(
          in, out_ / name, {"--statistics", dir_ / "s", "--method", "gptq", "--bits", bits});
      for (const BudgetPoint& p : quantize_checkpoint(options).curve) errors.insert(p.error);
    }
    EXPECT_EQ(errors.size(), 3u);
    return {errors.rbegin(), errors.rend()};
  }
  /// Returns the output error that is left by the Gram matrices, by name.
  std::map<std::string, double> kept(const fs::path& in) const {
    auto options =
        quantize_options(in, dir_ / "kept", {"--statistics", dir_ / "s", "--method", "gptq"});
    std::map<std::string, double> all;
    for (const TensorReport& t : quantize_checkpoint(options).tensors) all[t.name] = t.output.kept;
    return all;
  }
  static std::string expert(int e, const std::string& name) {
    return fmt::format("model.layers.0.mlp.experts.{}.{}", e, name);
  }
};

/// For a token of the starved expert, the error of every format is that of the completed matrix.
TEST_F(BitsByGptq, ExpertsOfFewTokensShareOneMatrix) {
  constexpr std::size_t kDepth = 64;
  constexpr int kStarved = 2;
  std::vector<TestTensor> tensors;
  std::map<std::string, TestStatistics> statistics;
  std::vector<double> layer(kDepth);
  double tokens = 0;
  for (int e = 0; e < 4; ++e) {
    const std::string name = expert(e, "gate_proj");
    tensors.push_back(random_tensor(name + ".weight", {96, kDepth}));
    const TestStatistics& s = statistics[name] =
        gram_statistics(name, kDepth, e == kStarved ? 20 : 4000);
    for (std::size_t k = 0; k < kDepth; ++k) layer[k] += double{s.diagonal[k]};
    tokens += double{s.count};
  }
  write_model(dir_ / "experts", {tensors}, "{}");
  write_statistics(dir_ / "s", statistics);
  const std::vector<double> errors = errors_of_one_layer(dir_ / "experts");
  auto by_gram = kept(dir_ / "experts");
  const double wanted = 4 * kDepth, share = 20 / wanted;
  double four = 0, eight = 0;
  for (int e = 0; e < 4; ++e) {
    const std::string name = expert(e, "gate_proj");
    std::vector<double> squares = doubles(statistics[name].diagonal);
    if (e == kStarved)
      for (std::size_t k = 0; k < kDepth; ++k)
        squares[k] = share * (squares[k] + (wanted - 20) * layer[k] / tokens);
    four += (e == kStarved ? share : 1) * by_gram.at(name + ".weight");
    eight += weighted_loss(dir_ / "experts", out_ / "8", name, squares);
  }
  EXPECT_NEAR(errors[0], four, 1e-9 * four);
  EXPECT_NEAR(errors[1], eight, 1e-9 * eight);
}

/// A stack of three: by a Gram matrix, by a diagonal, by what all others saw.
TEST_F(BitsByGptq, StackWithMissingGramMatricesIsWeighed) {
  std::vector<TestTensor> single;
  TestTensor stack{{"model.layers.0.mlp.experts.down_proj", safetensors::DType::bf16, {3, 64, 128}},
                   {}};
  std::map<std::string, TestStatistics> statistics;
  for (int e = 0; e < 3; ++e) {
    single.push_back(random_tensor(expert(e, "down_proj") + ".weight", {64, 128}));
    const auto& bytes = single.back().bytes;
    stack.bytes.insert(stack.bytes.end(), bytes.begin(), bytes.end());
    if (e < 2) statistics[expert(e, "down_proj")] = gram_statistics(fmt::format("{}", e), 128, 400);
  }
  statistics[expert(1, "down_proj")].triangle.clear();
  const std::string config = R"({"model_type": "qwen3_moe", "hidden_size": 64})";
  write_model(dir_ / "single", {single}, config);
  write_model(dir_ / "stack", {{stack}}, config);
  write_statistics(dir_ / "s", statistics);
  const std::vector<double> errors = errors_of_one_layer(dir_ / "stack");
  double sum = 0;
  std::vector<std::vector<double>> squares;
  for (int e = 0; e < 2; ++e) {
    squares.push_back(doubles(statistics[expert(e, "down_proj")].diagonal));
    for (const double v : squares.back()) sum += v;
  }
  squares.emplace_back(128, sum / 256);
  const auto loss = [&](const char* form, int e) {
    return weighted_loss(dir_ / "single", out_ / form, expert(e, "down_proj"),
                         squares[static_cast<std::size_t>(e)]);
  };
  const double four = kept(dir_ / "stack").at(stack.spec.name) + loss("4", 1) + loss("4", 2),
               eight = loss("8", 0) + loss("8", 1) + loss("8", 2);
  EXPECT_NEAR(errors[0], four, 1e-7 * four)
      << "values are rounded to FP32 where errors are measured";
  EXPECT_NEAR(errors[1], eight, 1e-7 * eight);
}

TEST_F(Bits, SizesAreOfTheWholeOutput) {
  auto options = quantize_options(in_, out_, {"--size", 100});
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
  auto options = quantize_options(in_, out_, {"--bits", 6, "--recipe", "mlp"});
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"recipe"});
  options.recipe.reset();
  options.size = 1;
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"bits and size"});
}

}  // namespace nvfp4::budget_test
