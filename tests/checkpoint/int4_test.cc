// INT4 weights of compressed-tensors, GPTQ and AWQ: what is read, against the formula.
#include "checkpoint/checkpoints.h"
#include "checkpoint/source/quantized_tensors.h"

namespace nvfp4::int4_test {

using enum safetensors::DType;
using checkpoint::CheckpointReader;
using checkpoint::LogicalTensor;

constexpr const char* kModule = "model.layers.0.mlp.up_proj";

/// A weight of integers, and how it is stored.
struct Case {
  const char* form;  ///< "pack-quantized", "gptq" or "awq"
  std::int64_t rows = 48, cols = 128, group = 32;
  bool zeros = true, g_idx = false;
  const char* version = "gptq";
  safetensors::DType scales = f16;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.form << ' ' << c.cols << '/' << c.group << (c.zeros ? " zeros " : " ")
               << (c.g_idx ? "g_idx " : "") << c.version;
  }
};

constexpr Case kCases[] = {
    {.form = "pack-quantized", .zeros = false, .scales = bf16},
    {.form = "pack-quantized", .rows = 20},
    {.form = "pack-quantized", .group = 128, .scales = f32},
    {.form = "pack-quantized", .g_idx = true},
    {.form = "gptq"},
    {.form = "gptq", .group = 128, .g_idx = true},
    {.form = "gptq", .g_idx = true, .version = "gptq_v2"},
    {.form = "awq"},
    {.form = "awq", .group = 64, .scales = bf16},
};

class Int4 : public testing::TestWithParam<Case> {
 protected:
  std::int64_t groups() const { return c_.cols / c_.group; }
  int code(std::int64_t n, std::int64_t k) const { return codes_.at(at(n * c_.cols + k)); }
  int zero(std::int64_t n, std::int64_t g) const {
    return c_.zeros ? zeros_.at(at(n * groups() + g)) : 8;
  }
  float scale(std::int64_t n, std::int64_t g) const { return scales_.at(at(n * groups() + g)); }
  std::int64_t group_of(std::int64_t k) const { return c_.g_idx ? g_idx_.at(at(k)) : k / c_.group; }

  std::vector<float> expected() const {
    std::vector<float> values;
    for (std::int64_t n = 0; n < c_.rows; ++n)
      for (std::int64_t k = 0; k < c_.cols; ++k)
        values.push_back(static_cast<float>(code(n, k) - zero(n, group_of(k))) *
                         scale(n, group_of(k)));
    return values;
  }

  void write(const fs::path& folder) {
    std::mt19937 random(3);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (std::int64_t i = 0; i < c_.rows * c_.cols; ++i) codes_.push_back(below(16));
    for (std::int64_t i = 0; i < c_.rows * groups(); ++i) {
      zeros_.push_back(below(16));
      const float s = static_cast<float>(1 + below(1000)) / 65536;
      scales_.push_back(c_.scales == bf16 ? BF16::from_float(s).to_float() : s);
    }
    for (std::int64_t k = 0; k < c_.cols; ++k) g_idx_.push_back(below(static_cast<int>(groups())));
    write_model(folder, {tensors()}, config());
  }

  const Case& c_ = GetParam();
  const TempDir dir_;

 private:
  using Get = std::function<int(std::int64_t, std::int64_t)>;
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  /// Words [lines, words], each with eight codes; `code(line, column)`.
  static std::vector<std::uint32_t> pack(std::int64_t lines, std::int64_t columns, const Get& code,
                                         bool interleaved = false) {
    constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // AutoAWQ's order_map
    std::vector<std::uint32_t> words;
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t first = 0; first < columns; first += 8) {
        std::uint32_t word = 0;
        for (int i = 0; i < 8; ++i) {
          const std::int64_t column = first + (interleaved ? kOrder[i] : i);
          const int value = column < columns ? code(line, column) : 0;
          word |= static_cast<std::uint32_t>(value & 15) << (4 * i);
        }
        words.push_back(word);
      }
    return words;
  }
  static std::vector<std::uint32_t> transposed(const std::vector<std::uint32_t>& words,
                                               std::int64_t lines) {
    std::vector<std::uint32_t> out;
    const std::int64_t width = static_cast<std::int64_t>(words.size()) / lines;
    for (std::int64_t w = 0; w < width; ++w)
      for (std::int64_t l = 0; l < lines; ++l) out.push_back(words.at(at(l * width + w)));
    return out;
  }

  std::vector<TestTensor> tensors() const {
    const std::string form = c_.form, m = kModule;
    const auto [rows, cols] = std::pair(c_.rows, c_.cols);
    const Get code_of = [&](std::int64_t n, std::int64_t k) { return code(n, k); };
    const Get by_column = [&](std::int64_t k, std::int64_t n) { return code(n, k); };
    const int offset = std::string_view(c_.version) == "gptq_v2" || form != "gptq" ? 0 : 1;
    const Get zero_of = [&](std::int64_t g, std::int64_t n) { return zero(n, g) - offset; };
    std::vector<float> by_group;
    for (std::int64_t g = 0; g < groups(); ++g)
      for (std::int64_t n = 0; n < rows; ++n) by_group.push_back(scale(n, g));
    std::vector<TestTensor> out;
    const std::vector<std::int32_t> shape = {static_cast<std::int32_t>(rows),
                                             static_cast<std::int32_t>(cols)};
    if (form == "pack-quantized") {
      out = {stored(m + ".weight_packed", i32, {rows, cols / 8}, pack(rows, cols, code_of)),
             {{m + ".weight_scale", c_.scales, {rows, groups()}}, encode(scales_, c_.scales)},
             stored(m + ".weight_shape", i32, {2}, shape)};
      if (c_.zeros)  // words along the rows
        out.push_back(stored(m + ".weight_zero_point", i32, {(rows + 7) / 8, groups()},
                             transposed(pack(groups(), rows, zero_of), groups())));
    } else {
      const bool awq = form == "awq";
      out = {awq ? stored(m + ".qweight", i32, {cols, rows / 8}, pack(cols, rows, by_column, true))
                 : stored(m + ".qweight", i32, {cols / 8, rows},
                          transposed(pack(rows, cols, code_of), rows)),
             {{m + ".scales", c_.scales, {groups(), rows}}, encode(by_group, c_.scales)},
             stored(m + ".qzeros", i32, {groups(), rows / 8}, pack(groups(), rows, zero_of, awq))};
    }
    if (c_.g_idx)
      out.push_back(stored(m + (form == "gptq" ? ".g_idx" : ".weight_g_idx"), i32, {cols}, g_idx_));
    out.push_back(random_tensor("model.norm.weight", {64}));
    return out;
  }

  std::string config() const {
    const std::string form = c_.form;
    Json json = {{"model_type", "llama"}};
    if (form == "pack-quantized")
      json["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", form},
                                     {"config_groups",
                                      {{"group_0",
                                        {{"targets", {"Linear"}},
                                         {"weights",
                                          {{"num_bits", 4},
                                           {"type", "int"},
                                           {"group_size", groups() == 1 ? Json() : Json(c_.group)},
                                           {"symmetric", !c_.zeros}}}}}}}};
    else
      json["quantization_config"] = {{"quant_method", form},
                                     {"bits", 4},
                                     {"group_size", groups() == 1 ? -1 : c_.group},
                                     {"checkpoint_format", c_.version}};
    return json.dump();
  }

  std::vector<int> codes_, zeros_;
  std::vector<float> scales_;
  std::vector<std::int32_t> g_idx_;
};

TEST_P(Int4, ValuesAreCodeMinusZeroTimesScale) {
  write(dir_ / "in");
  const CheckpointReader reader(dir_ / "in");
  const LogicalTensor* t = reader.find(std::string(kModule) + ".weight");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->shape, (std::vector<std::int64_t>{c_.rows, c_.cols}));
  EXPECT_EQ(t->form_name(), "INT4");
  const std::vector<float> all = expected();
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, c_.rows * c_.cols},
                                     {16, 32},
                                     {c_.cols * 9 - 32, 3 * c_.cols}}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    t->read(first, values);
    const auto begin = all.begin() + first;
    EXPECT_EQ(values, std::vector<float>(begin, begin + count)) << first;
  }
}

TEST_P(Int4, BecomesBf16AndNvfp4) {
  write(dir_ / "in");
  convert(dir_ / "in", dir_ / "bf16", "bf16");
  const LoadedModel bf(dir_ / "bf16");
  EXPECT_EQ(bf.at(std::string(kModule) + ".weight").bytes, encode(expected(), bf16));
  EXPECT_EQ(bf.tensors.size(), 2u) << "no part of a weight is left";
  EXPECT_FALSE(LoadedFolder(dir_ / "bf16").config.contains("quantization_config"));
  if (c_.rows % 16 != 0) return;  // not quantized
  const TestTensor norm = random_tensor("model.norm.weight", {64});
  write_model(
      dir_ / "plain",
      {{stored_f32(std::string(kModule) + ".weight", {c_.rows, c_.cols}, expected()), norm}},
      R"({"model_type": "llama"})");
  for (const char* from : {"in", "plain"})
    quantize_checkpoint(dir_ / from, dir_ / (std::string("of ") + from));
  expect_same_tensors(dir_ / "of in", dir_ / "of plain");
  EXPECT_FALSE(verify_checkpoint(verify_options(dir_ / "of in", dir_ / "in")).broken());
}

INSTANTIATE_TEST_SUITE_P(Form, Int4, testing::ValuesIn(kCases));

/// Damage to one of several weights is a fault, but other widths of codes are an unknown form.
TEST(Int4OfSeveral, DamageToOneIsAFault) {
  using Shape = std::vector<std::int64_t>;
  struct Damage {
    const char *form, *removed, *added;
    safetensors::DType dtype;
    Shape shape;
    const char *code, *text;
  };
  const Damage damages[] = {
      {"ct", "b.weight_scale", "", bf16, {}, "missing-scale", "it has no scales"},
      {"ct", "b.weight_shape", "", bf16, {}, "wrong-shape", "it has no weight_shape"},
      {"ct", "b.weight_scale", "b.weight_scale", bf16, {8, 2}, "wrong-shape", "its scales are [8"},
      {"ct", "b.weight_packed", "b.weight_packed", i32, {16, 7}, "wrong-shape", "weight_shape is"},
      {"ct",
       "b.weight_packed",
       "b.weight_packed",
       i32,
       {16, 16},
       "unknown-form",
       "weight_shape is"},
      {"ct", "b.weight_packed", "", bf16, {}, "orphan-scale", "'b.weight_scale': no quantized"},
      {"gptq", "b.qweight", "", bf16, {}, "orphan-scale", "'b.qzeros': no quantized"},
      {"ct",
       "b.weight_scale",
       "b.weight_scale",
       bf16,
       {16, 1},
       "wrong-shape",
       "no group of config"},
      {"ct", "b.weight_scale", "b.weight_scale", i32, {16, 2}, "wrong-dtype", "its scales are I32"},
      {"gptq", "b.g_idx", "", bf16, {}, "missing-scale", "INT4 without '.g_idx', which others"},
      {"gptq", "b.qweight", "b.qweight", bf16, {8, 16}, "wrong-dtype", "its codes are BF16"},
      {"gptq", "b.qweight", "b.qweight", i32, {8, 16, 1}, "wrong-shape", "its codes are I32"},
      {"gptq", "b.scales", "b.scales", bf16, {1, 16}, "wrong-shape", "its zero points are"},
      {"gptq", "b.scales", "", bf16, {}, "missing-scale", "it has no scales"},
      {"gptq", "b.qzeros", "", bf16, {}, "missing-scale", "it has no zero points"},
      {"gptq", "b.qzeros", "b.qzeros", i32, {2, 3}, "wrong-shape", "its zero points are"},
      {"gptq", "b.qweight", "b.qweight", i32, {7, 16}, "wrong-shape", "the groups of columns"},
      {"gptq", "b.qweight", "b.qweight", i32, {16, 16}, "unknown-form", "the groups of columns"},
      {"awq", "b.scales", "", bf16, {}, "missing-scale", "it has no scales"},
      {"awq", "b.scales", "b.scales", bf16, {3, 16}, "wrong-shape", "its scales are [3"},
  };
  const std::vector<std::int32_t> shape = {16, 64}, groups(64);
  for (const Damage& d : damages) {
    SCOPED_TRACE(std::string(d.form) + " " + d.text);
    const TempDir dir;
    std::vector<TestTensor> tensors;
    const auto zeros = [&](const std::string& name, safetensors::DType dtype, Shape s) {
      const auto bytes = static_cast<std::size_t>(element_count(s)) * (dtype == i32 ? 4 : 2);
      tensors.push_back({{name, dtype, std::move(s)}, std::vector<std::byte>(bytes)});
    };
    const std::string form = d.form;
    for (const std::string m : {"a", "b", "c"}) {
      if (form == "ct") {
        zeros(m + ".weight_packed", i32, {16, 8});
        zeros(m + ".weight_scale", bf16, {16, 2});
        tensors.push_back(stored(m + ".weight_shape", i32, {2}, shape));
        continue;
      }
      zeros(m + ".qweight", i32, form == "awq" ? Shape{64, 2} : Shape{8, 16});
      zeros(m + ".scales", bf16, {2, 16});
      zeros(m + ".qzeros", i32, {2, 2});
      if (form == "gptq") tensors.push_back(stored(m + ".g_idx", i32, {64}, groups));
    }
    std::erase_if(tensors, [&](const TestTensor& t) { return t.spec.name == d.removed; });
    if (*d.added != '\0') zeros(d.added, d.dtype, d.shape);
    Json config = {{"quant_method", form}, {"bits", 4}, {"group_size", 32}};
    if (form == "ct") {
      const Json weights = {
          {"num_bits", 4}, {"type", "int"}, {"group_size", 32}, {"symmetric", true}};
      config = {{"quant_method", "compressed-tensors"},
                {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
    }
    write_model(dir / "in", {tensors},
                Json({{"model_type", "llama"}, {"quantization_config", config}}).dump());
    const VerifyReport report = verify_checkpoint(verify_options(dir / "in"));
    EXPECT_TRUE(codes_of(report).contains(d.code)) << text_of(report);
    for (const char* other : {"missing-scale", "orphan-scale", "unknown-form"})
      EXPECT_EQ(codes_of(report).contains(other), d.code == std::string(other)) << text_of(report);
    EXPECT_THAT(text_of(report), testing::HasSubstr(d.text));
    expect_error<Error>([&] { quantize_checkpoint(dir / "in", dir / "out"); }, {d.text});
  }
}

/// Models of Kimi have the configuration inside "text_config".
TEST(Int4OfKimi, ItsConfigurationGoes) {
  const TempDir dir;
  const std::string m = "language_model.model.layers.0.mlp.experts.0.up_proj";
  const std::vector<std::int32_t> shape = {16, 64};
  std::vector<TestTensor> tensors = {
      {{m + ".weight_packed", i32, {16, 8}}, random_bytes(512, m, 0, 255)},
      random_tensor(m + ".weight_scale", {16, 2}),
      stored(m + ".weight_shape", i32, {2}, shape),
      random_tensor("language_model.lm_head.weight", {32, 64})};
  write_model(dir / "in", {tensors},
              R"({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2",
                  "quantization_config": {"quant_method": "compressed-tensors",
                  "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
                  "weights": {"num_bits": 4, "type": "int", "group_size": 32,
                  "symmetric": true}}}}}})");
  convert(dir / "in", dir / "out", "bf16");
  EXPECT_EQ(read_text(dir / "out" / "config.json").find("quantization_config"), std::string::npos);
  EXPECT_TRUE(LoadedModel(dir / "out").has(m + ".weight"));
}

}  // namespace nvfp4::int4_test
