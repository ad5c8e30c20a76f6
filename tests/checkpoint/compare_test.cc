#include "checkpoint/checkpoints.h"

namespace nvfp4::compare_test {

using enum safetensors::DType;

class Compare : public ::testing::Test {
 protected:
  CompareReport compare(const std::vector<TestTensor>& a, const std::vector<TestTensor>& b) {
    write_shard(dir_ / "a.safetensors", a);
    write_shard(dir_ / "b.safetensors", b);
    return compare_checkpoints(dir_ / "a.safetensors", dir_ / "b.safetensors");
  }
  TempDir dir_;
};

TestTensor values_bf16(const std::string& name, std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float v : values) bits.push_back(BF16::from_float(v).bits);
  return stored(name, bf16, std::move(shape), bits);
}

std::vector<float> waves(std::size_t n, float phase = 0) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = std::sin(0.37f * static_cast<float>(i % 100003) + phase);
  return values;
}

TEST_F(Compare, MeasuresKnownDifferences) {
  const CompareReport r =
      compare({stored_f32("x", {4}, {3, 0, -4, 0}), stored_f32("y", {1}, {2})},
              {stored_f32("x", {4}, {3, 0.3f, -4, -0.4f}), stored_f32("y", {1}, {1})});
  ASSERT_EQ(r.tensors.size(), 2u);
  EXPECT_EQ(r.tensors[0].name, "y") << "worst first";
  EXPECT_EQ(r.tensors[0].relative_error, 0.5);
  const TensorDifference& x = r.tensors[1];
  EXPECT_NEAR(x.relative_error, 0.1, 1e-7);
  EXPECT_NEAR(x.sqnr_db, 20, 1e-5);
  EXPECT_FLOAT_EQ(static_cast<float>(x.max_error), 0.4f);
  EXPECT_NEAR(x.squared_error, 0.25, 1e-7);
  EXPECT_EQ(x.squared_norm, 25);
  EXPECT_EQ(x.form_a, "F32");
  EXPECT_NEAR(r.relative_error, std::sqrt(1.25 / 29), 1e-7);
  EXPECT_NEAR(r.sqnr_db, 10 * std::log10(29 / 1.25), 1e-5);
  EXPECT_EQ(r.max_error, 1);
  EXPECT_EQ(r.identical, 0);
}

TEST_F(Compare, ReportHasMedianAndTotalError) {
  const auto of = [&](const std::vector<float>& changed) {
    std::vector<TestTensor> a, b;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      a.push_back(stored_f32(name, {1}, {i == 0 ? 1000.0f : 1.0f}));
      b.push_back(stored_f32(name, {1}, {(i == 0 ? 1000.0f : 1.0f) * (1 + changed[i])}));
    }
    return compare(a, b);
  };
  const CompareReport r = of({0.5f, 0.125f, 0.25f});
  EXPECT_NEAR(r.relative_error, 0.5, 1e-4) << "the largest decides";
  EXPECT_EQ(r.median_relative_error, 0.25);
  EXPECT_EQ(of({0.5f, 0.125f}).median_relative_error, 0.3125);
  EXPECT_EQ(of({0.0f}).median_relative_error, 0);
  const auto json = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(json.at("median_relative_error"), 0.25);
  EXPECT_EQ(json.at("worst_relative_error"), 0.5);
  EXPECT_EQ(json.at("worst"), "a");
}

TEST_F(Compare, CountsIdenticalTensorsWhateverTheyHold) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<TestTensor> same{
      stored_f32("x", {3}, {1, nan, inf}), stored("f4", f4, {16}, std::vector<std::uint8_t>(8)),
      stored("none", bf16, {0, 4}, std::vector<std::uint16_t>()),
      stored("n", i64, {2}, std::vector<std::int64_t>{1, std::int64_t{1} << 60})};
  const CompareReport r = compare(same, same);
  EXPECT_EQ(r.identical, 4);
  EXPECT_TRUE(r.tensors.empty());
  EXPECT_EQ(r.relative_error, 0);
  EXPECT_EQ(r.max_error, 0);
}

TEST_F(Compare, SeesDifferencesThatFloatsCannotHold) {
  const std::int64_t big = std::int64_t{1} << 60;
  const CompareReport r = compare({stored("n", i64, {2}, std::vector<std::int64_t>{1, big})},
                                  {stored("n", i64, {2}, std::vector<std::int64_t>{1, big + 1})});
  EXPECT_EQ(r.identical, 0);
  EXPECT_EQ(r.tensors.size(), 1u);
}

TEST_F(Compare, OtherDtypeOfSameValuesHasNoError) {
  const CompareReport r = compare({stored_f32("x", {2}, {1, 2})}, {values_bf16("x", {2}, {1, 2})});
  ASSERT_EQ(r.tensors.size(), 1u);
  EXPECT_EQ(r.tensors[0].form_b, "BF16");
  EXPECT_EQ(r.tensors[0].relative_error, 0);
  EXPECT_EQ(r.tensors[0].sqnr_db, std::numeric_limits<double>::infinity());
}

TEST_F(Compare, ReadsEveryNumericDtype) {
  const auto one = [&](TestTensor t, float value) {
    const CompareReport r = compare({stored_f32("x", {1}, {value})}, {t});
    ASSERT_EQ(r.tensors.size(), 1u);
    EXPECT_EQ(r.tensors[0].max_error, 0) << r.tensors[0].form_b;
  };
  one(stored("x", u8, {1}, std::vector<std::uint8_t>{200}), 200);
  one(stored("x", boolean, {1}, std::vector<std::uint8_t>{1}), 1);
  one(stored("x", i8, {1}, std::vector<std::int8_t>{-3}), -3);
  one(stored("x", i16, {1}, std::vector<std::int16_t>{-300}), -300);
  one(stored("x", u16, {1}, std::vector<std::uint16_t>{60000}), 60000);
  one(stored("x", i32, {1}, std::vector<std::int32_t>{-70000}), -70000);
  one(stored("x", u32, {1}, std::vector<std::uint32_t>{70000}), 70000);
  one(stored("x", i64, {1}, std::vector<std::int64_t>{-5}), -5);
  one(stored("x", u64, {1}, std::vector<std::uint64_t>{5}), 5);
  one(stored("x", f64, {1}, std::vector<double>{0.5}), 0.5f);
  one(stored("x", f16, {1}, std::vector<std::uint16_t>{0x3800}), 0.5f);
  one(stored("x", f8_e5m2, {1}, std::vector<std::uint8_t>{0x38}), 0.5f);
  one(stored("x", f8_e4m3, {1}, std::vector<std::uint8_t>{0x30}), 0.5f);
  one(stored("x", f8_e8m0, {1}, std::vector<std::uint8_t>{126}), 0.5f);
}

TEST_F(Compare, DequantizesBothFormats) {
  constexpr std::int64_t kRows = 24, kCols = 64;
  const std::vector<float> x = waves(kRows * kCols);
  const QuantizedMatrix q = quantize({x.data(), DType::f32, kRows, kCols});
  const std::vector<std::uint8_t> codes(q.codes(), q.codes() + kRows * kCols / 2);
  const std::vector<std::uint8_t> scales(q.scales(), q.scales() + kRows * kCols / 16);
  const Matrix back = dequantize(q.view());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - back.data<float>()[i], 2);
    norm += std::pow(static_cast<double>(x[i]), 2);
  }
  const auto plain = stored_f32("m.weight", {kRows, kCols}, x);
  const auto modelopt = modelopt_layer("m", kRows, kCols, codes, scales, *q.global_scale());
  const CompareReport r = compare({plain}, modelopt);
  ASSERT_EQ(r.tensors.size(), 1u);
  EXPECT_NEAR(r.tensors[0].relative_error, std::sqrt(error / norm), 1e-12);
  EXPECT_GT(r.tensors[0].relative_error, 0.05);
  EXPECT_LT(r.tensors[0].relative_error, 0.15);
  EXPECT_EQ(r.tensors[0].form_a, "F32");
  EXPECT_EQ(r.tensors[0].form_b, "NVFP4");
  EXPECT_TRUE(r.only_in_b.empty()) << "scales are parts of the weight";

  const auto other = compressed_tensors_layer("m", kRows, kCols, codes, scales, 4);
  const auto same = modelopt_layer("m", kRows, kCols, codes, scales, 0.25f);
  EXPECT_EQ(compare(same, other).identical, 1);
  auto changed = same;
  changed[1].bytes[95] ^= std::byte{1};
  EXPECT_EQ(compare(same, changed).identical, 0);
}

/// A folder with stacked experts and config.json, and one with the same values one by one.
class CompareStacks : public Compare {
 protected:
  static constexpr std::int64_t kExperts = 2, kInner = 52, kHidden = 32;

  /// gate_up is [E, 2 · inner, hidden], or [E, hidden, 2 · inner] if `transposed`.
  void write_stacked(const char* model_type, bool transposed) {
    std::filesystem::create_directories(dir_ / "stacked");
    std::vector<float> gate_up(kExperts * 2 * kInner * kHidden), down(kExperts * kInner * kHidden);
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (std::int64_t n = 0; n < 2 * kInner; ++n)
        for (std::int64_t k = 0; k < kHidden; ++k) {
          const std::int64_t at = transposed ? k * 2 * kInner + n : n * kHidden + k;
          gate_up[static_cast<std::size_t>(e * 2 * kInner * kHidden + at)] = value(e, n, k);
        }
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (std::int64_t n = 0; n < kHidden; ++n)
        for (std::int64_t k = 0; k < kInner; ++k) {
          const std::int64_t at = transposed ? k * kHidden + n : n * kInner + k;
          down[static_cast<std::size_t>(e * kInner * kHidden + at)] = value(e, 1000 + n, k);
        }
    using Shape = std::vector<std::int64_t>;
    write_shard(dir_ / "stacked" / "model.safetensors",
                {stored_f32("mlp.experts.gate_up_proj",
                            transposed ? Shape{kExperts, kHidden, 2 * kInner}
                                       : Shape{kExperts, 2 * kInner, kHidden},
                            gate_up),
                 stored_f32("mlp.experts.down_proj",
                            transposed ? Shape{kExperts, kInner, kHidden}
                                       : Shape{kExperts, kHidden, kInner},
                            down)});
    write_text(dir_ / "stacked" / "config.json",
               std::string(R"({"hidden_size": 32, "model_type": ")") + model_type + "\"}");
  }

  /// `change` is added to the last element of expert 1's up_proj.
  void write_single(float change, bool all = true) {
    std::vector<TestTensor> tensors;
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (const int part : {0, 1, 2}) {
        const std::int64_t rows = part == 2 ? kHidden : kInner, cols = part == 2 ? kInner : kHidden;
        std::vector<float> x;
        for (std::int64_t n = 0; n < rows; ++n)
          for (std::int64_t k = 0; k < cols; ++k)
            x.push_back(value(e, n + (part == 0 ? 0 : part == 1 ? kInner : 1000), k));
        if (e == 1 && part == 1) x.back() += change;
        const char* names[] = {"gate_proj", "up_proj", "down_proj"};
        tensors.push_back(stored_f32(
            "mlp.experts." + std::to_string(e) + "." + names[part] + ".weight", {rows, cols}, x));
      }
    if (!all) tensors.erase(tensors.begin());
    std::filesystem::create_directories(dir_ / "single");
    write_shard(dir_ / "single" / "model.safetensors", tensors);
  }

  static float value(std::int64_t e, std::int64_t n, std::int64_t k) {
    return static_cast<float>(e * 100000 + n * 60 + k);
  }
};

TEST_F(CompareStacks, StackedAndSingleExpertsArePaired) {
  write_single(0.5f);
  for (const bool transposed : {false, true}) {
    write_stacked(transposed ? "llama4" : "qwen3_moe", transposed);
    for (const bool swapped : {false, true}) {
      const CompareReport r = compare_checkpoints(dir_ / (swapped ? "single" : "stacked"),
                                                  dir_ / (swapped ? "stacked" : "single"));
      EXPECT_TRUE(r.only_in_a.empty() && r.only_in_b.empty());
      EXPECT_EQ(r.identical, 5);
      ASSERT_EQ(r.tensors.size(), 1u);
      EXPECT_EQ(r.tensors[0].name, "mlp.experts.1.up_proj.weight");
      EXPECT_EQ(r.tensors[0].max_error, 0.5);
    }
  }
}

TEST_F(CompareStacks, StackWithMissingExpertsStaysUnpaired) {
  write_stacked("qwen3_moe", false);
  write_single(0, /*all=*/false);
  const CompareReport r = compare_checkpoints(dir_ / "stacked", dir_ / "single");
  EXPECT_EQ(r.only_in_a, std::vector<std::string>{"mlp.experts.gate_up_proj"});
  EXPECT_EQ(r.only_in_b.size(), 3u);
  EXPECT_EQ(r.identical, 2);
}

TEST_F(Compare, PutsNaNFirstAndWritesNull) {
  const CompareReport r = compare(
      {stored_f32("x", {2}, {1, 1}), stored_f32("y", {2}, {1, 1}), stored_f32("z", {1}, {0})},
      {stored_f32("x", {2}, {9, 9}), stored_f32("y", {2}, {1, std::nanf("")}),
       stored_f32("z", {1}, {0})});
  ASSERT_EQ(r.tensors.size(), 2u);
  EXPECT_EQ(r.tensors[0].name, "y");
  EXPECT_TRUE(std::isnan(r.tensors[0].max_error));
  EXPECT_TRUE(std::isnan(r.max_error));
  const auto json = nlohmann::json::parse(to_json(r));
  EXPECT_TRUE(json.at("relative_error").is_null());
  EXPECT_TRUE(json.at("tensors").at(0).at("max_error").is_null());
  EXPECT_EQ(json.at("tensors").at(1).at("max_error"), 8);
  EXPECT_EQ(json.at("identical"), 1);
}

TEST_F(Compare, ListsWhatCannotBeCompared) {
  const CompareReport r = compare(
      {stored_f32("a", {1}, {1}), stored_f32("s", {2}, {1, 1}), stored_f32("f", {2}, {1, 1})},
      {stored_f32("b", {1}, {1}), stored_f32("s", {1, 2}, {1, 1}),
       stored("f", f4, {2}, std::vector<std::uint8_t>(1))});
  EXPECT_EQ(r.only_in_a, std::vector<std::string>{"a"});
  EXPECT_EQ(r.only_in_b, std::vector<std::string>{"b"});
  ASSERT_EQ(r.shape_mismatch.size(), 2u);
  EXPECT_EQ(r.shape_mismatch[0], "s: [2] and [1, 2]");
  EXPECT_THAT(r.shape_mismatch[1], HasSubstr("F4"));
  EXPECT_TRUE(r.tensors.empty());
}

TEST_F(Compare, DoesNotDependOnTheNumberOfThreads) {
  constexpr std::size_t n = 3'500'003;  // several chunks, and a rest
  write_shard(dir_ / "a.safetensors", {stored_f32("x", {n}, waves(n))});
  write_shard(dir_ / "b.safetensors", {stored_f32("x", {n}, waves(n, 1e-3f))});
  std::string results[2];
  for (const int threads : {1, 3}) {
    set_threads(threads);
    results[threads == 3] =
        to_json(compare_checkpoints(dir_ / "a.safetensors", dir_ / "b.safetensors"));
  }
  set_threads(0);
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(Compare, ReportsProgressUpToTheEnd) {
  write_shard(dir_ / "a.safetensors", {stored_f32("x", {2}, {1, 2}), stored_f32("y", {1}, {1})});
  Progress last;
  compare_checkpoints(dir_ / "a.safetensors", dir_ / "a.safetensors",
                      [&](const Progress& p) { last = p; });
  EXPECT_EQ(last.tensors_done, 2);
  EXPECT_EQ(last.tensors_total, 2);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
}

TEST_F(Compare, NamesTheSideThatIsMissing) {
  write_shard(dir_ / "a.safetensors", {stored_f32("x", {1}, {1})});
  expect_error<IoError>([&] { compare_checkpoints(dir_ / "a.safetensors", dir_ / "nowhere"); },
                        {"nowhere"});
}

}  // namespace nvfp4::compare_test
