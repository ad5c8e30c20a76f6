// Experts that a model stacks: one by one in the output, or stacks there, too.
#include "checkpoint/checkpoints.h"
#include "checkpoint/families/family.h"
#include "layers/moe_cases.h"

namespace nvfp4::quantize_stacks_test {

using Names = std::vector<std::string>;

/// [experts, k, n] -> the [n, k] matrix of one expert, rows `first`, first + step, ...
std::vector<std::byte> transposed(const TestTensor& t, std::int64_t expert, std::int64_t first,
                                  std::int64_t step, std::int64_t rows) {
  const std::int64_t k = t.spec.shape[1], n = t.spec.shape[2];
  std::vector<std::byte> out;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < k; ++c) {
      const auto i = static_cast<std::size_t>(2 * ((expert * k + c) * n + first + r * step));
      out.insert(out.end(), {t.bytes[i], t.bytes[i + 1]});
    }
  return out;
}

/// In the layouts of Llama 4 and of GPT-OSS, three experts of 48 · 64.
class StackedExpertsOfAModel : public testing::TestWithParam<bool> {
 protected:
  void write(const std::string& config) const {
    write_model(dir_ / "in", {{gate_up_, down_, random_tensor("l.mlp.router.weight", {3, 64})}},
                config);
  }
  /// The model with its experts one by one.
  LoadedModel single() const {
    LoadedModel in(dir_ / "in");
    for (std::int64_t e = 0; e < 3; ++e) {
      const std::string p = prefix(e);
      const std::int64_t step = interleaved() ? 2 : 1;
      in.tensors[p + "gate_proj.weight"] = {
          safetensors::DType::bf16, {48, 64}, transposed(gate_up_, e, 0, step, 48)};
      in.tensors[p + "up_proj.weight"] = {
          safetensors::DType::bf16,
          {48, 64},
          transposed(gate_up_, e, interleaved() ? 1 : 48, step, 48)};
      in.tensors[p + "down_proj.weight"] = {
          safetensors::DType::bf16, {64, 48}, transposed(down_, e, 0, 1, 64)};
    }
    return in;
  }
  static bool interleaved() { return GetParam(); }
  static std::string prefix(std::int64_t e) { return fmt::format("l.mlp.experts.{}.", e); }

  const TempDir dir_;
  const TestTensor gate_up_ = random_tensor("l.mlp.experts.gate_up_proj", {3, 64, 96}),
                   down_ = random_tensor("l.mlp.experts.down_proj", {3, 48, 64});
};

INSTANTIATE_TEST_SUITE_P(Rows, StackedExpertsOfAModel, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Interleaved" : "OneAfterTheOther");
});

TEST_P(StackedExpertsOfAModel, AreWrittenOneByOne) {
  using namespace checkpoint;
  const Family row = {.model_types = "tartan",
                      .stacks = interleaved() ? Stacks::interleaved : Stacks::columns,
                      .only_stacks = interleaved()};
  const AddedFamily added(row);
  write(R"({"model_type": "x", "text_config": {"model_type": "tartan", "hidden_size": 64}})");
  const QuantizeReport report = quantize_checkpoint(dir_ / "in", dir_ / "out");
  EXPECT_EQ(report.tensors[0].kind, "stacked experts");
  EXPECT_EQ(std::ranges::count_if(report.warnings,
                                  [](const std::string& w) { return w.starts_with("tartan"); }),
            interleaved());
  const LoadedModel out(dir_ / "out"), in = single();
  EXPECT_FALSE(out.has("l.mlp.experts.gate_up_proj"));
  for (std::int64_t e = 0; e < 3; ++e) {
    expect_quantized(in, out, {prefix(e) + "gate_proj", prefix(e) + "up_proj"}, Quantizer::mse);
    expect_quantized(in, out, {prefix(e) + "down_proj"}, Quantizer::mse);
  }
}

/// Codes [3, K / 2, N], scales [3, K / 16, N], one global scale and one input scale for all.
TEST_P(StackedExpertsOfAModel, StayStacksWhereModelOptExportsThem) {
  write(interleaved() ? R"({"model_type": "gpt_oss", "hidden_size": 64})"
                      : R"({"model_type": "llama4", "text_config": {"hidden_size": 64}})");
  const QuantizeReport report = quantize_checkpoint(dir_ / "in", dir_ / "out");
  EXPECT_EQ(report.tensors[0].kind, "stacked experts");
  EXPECT_TRUE(report.warnings.empty()) << testing::PrintToString(report.warnings);
  const LoadedModel out(dir_ / "out"), in = single();
  EXPECT_EQ(out.tensors.size(), 2u * 4 + 1);
  LoadedModel parts(dir_ / "out");  // as experts one by one would be
  Names gates, downs;
  const auto part = [&](const std::string& module, const std::string& stack, std::int64_t e,
                        std::int64_t first, std::int64_t step, std::int64_t rows) {
    for (const auto& [from, to] : {std::pair("", ".weight"), {"_weight_scale", ".weight_scale"}}) {
      const auto& t = out.at("l.mlp.experts." + stack + from);
      const std::int64_t width = t.shape[1], n = t.shape[2];
      auto& single = parts.tensors[module + to] = {t.dtype, {rows, width}, {}};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < width; ++c)
          single.bytes.push_back(
              t.bytes[static_cast<std::size_t>((e * width + c) * n + first + r * step)]);
    }
    parts.tensors[module + ".weight_scale_2"] =
        out.at("l.mlp.experts." + stack + "_weight_scale_2");
  };
  for (std::int64_t e = 0; e < 3; ++e) {
    const std::int64_t step = interleaved() ? 2 : 1;
    part(prefix(e) + "gate_proj", "gate_up_proj", e, 0, step, 48);
    part(prefix(e) + "up_proj", "gate_up_proj", e, interleaved() ? 1 : 48, step, 48);
    part(prefix(e) + "down_proj", "down_proj", e, 0, 1, 64);
    gates.insert(gates.end(), {prefix(e) + "gate_proj", prefix(e) + "up_proj"});
    downs.push_back(prefix(e) + "down_proj");
  }
  expect_quantized(in, parts, gates, Quantizer::mse);
  expect_quantized(in, parts, downs, Quantizer::mse);
  for (const char* stack : {"gate_up_proj", "down_proj"}) {
    const auto& input = out.at(fmt::format("l.mlp.experts.{}_input_scale", stack));
    EXPECT_TRUE(input.shape.empty());
    EXPECT_EQ(input.dtype, safetensors::DType::f32);
  }
  auto verify = verify_options(dir_ / "out", dir_ / "in");
  EXPECT_FALSE(verify_checkpoint(verify).broken());
  // A stack stays a stack, with its bytes.
  convert(dir_ / "out", dir_ / "again", "modelopt");
  const LoadedModel again(dir_ / "again");
  ASSERT_EQ(again.tensors.size(), out.tensors.size());
  for (const auto& [name, tensor] : out.tensors)
    EXPECT_EQ(again.at(name).bytes, tensor.bytes) << name;
  LoadedFolder broken(dir_ / "out");
  broken.at("l.mlp.experts.down_proj_weight_scale").bytes[5] |= std::byte{0x80};
  broken.write(dir_ / "broken");
  repair_checkpoint(repair_options(dir_ / "broken", dir_ / "repaired", dir_ / "in"));
  verify.path = dir_ / "repaired";
  EXPECT_FALSE(verify_checkpoint(verify).broken());
  EXPECT_EQ(LoadedModel(dir_ / "repaired").at("l.mlp.experts.down_proj").bytes,
            out.at("l.mlp.experts.down_proj").bytes);
}

/// The layouts are those of GPT-OSS: [experts, N, K] and [experts, K, N]. The down projections are
/// square.
TEST(StackedExperts, DownProjOrientsASquareStack) {
  for (const bool by_columns : {false, true}) {
    const TempDir dir;
    const TestTensor square = random_tensor("l.experts.gate_up_proj", {2, 64, 64}),
                     down = by_columns ? random_tensor("l.experts.down_proj", {2, 32, 64})
                                       : random_tensor("l.experts.down_proj", {2, 64, 32});
    std::vector<TestTensor> single;
    const auto add = [&](const TestTensor& stack, std::int64_t e, const char* part,
                         std::int64_t first, std::int64_t rows, std::int64_t cols) {
      TestTensor& t = single.emplace_back(
          random_tensor(fmt::format("l.experts.{}.{}.weight", e, part), {rows, cols}));
      const auto begin =
          stack.bytes.begin() + 2 * (e * stack.spec.shape[1] * stack.spec.shape[2] + first * cols);
      t.bytes = by_columns ? transposed(stack, e, first, 1, rows)
                           : std::vector(begin, begin + 2 * rows * cols);
    };
    for (const std::int64_t e : {0, 1}) {
      add(square, e, "gate_proj", 0, 32, 64);
      add(square, e, "up_proj", 32, 32, 64);
      add(down, e, "down_proj", 0, 64, 32);
    }
    write_model(dir / "stacked", {{square, down}}, R"({"hidden_size": 64})");
    write_model(dir / "single", {single}, R"({"hidden_size": 64})");
    EXPECT_EQ(compare_checkpoints(dir / "stacked", dir / "single").identical, 6);
    const Matrix x = test::make(test::Fill::gaussian, 7, 64, 2, DType::bf16);
    const test::MoeCase routing(7, 16, 16, false, 4, 0);
    std::vector<Matrix> results;
    for (const std::string name : {"stacked", "single"}) {
      quantize_checkpoint(dir / name, dir / (name + "4"));
      results.push_back(test::run(load_moe(Checkpoint(dir / name), "l", {}, Unquantized::quantize),
                                  x.view(), routing.routing()));
    }
    expect_same_tensors(dir / "stacked4", dir / "single4");
    EXPECT_TRUE(test::same_bits(results[0], results[1]));
  }
}

TEST(StackedExpertsOfMxfp4, AreComparedWithStacksOfModelOpt) {
  const TempDir dir;
  const std::string p = "model.layers.0.mlp.experts.";
  std::vector<TestTensor> tensors;
  append(tensors, mxfp4_weight(p + "gate_up_proj_blocks", p + "gate_up_proj_scales",
                               {3, 128, 2, 16}, {3, 128, 2}, 118, 120));
  append(tensors, mxfp4_weight(p + "down_proj_blocks", p + "down_proj_scales", {3, 64, 2, 16},
                               {3, 64, 2}, 118, 120));
  write_model(dir / "in", {tensors},
              R"({"model_type": "gpt_oss", "hidden_size": 64,
                  "quantization_config": {"quant_method": "mxfp4"}})");
  quantize_checkpoint(dir / "in", dir / "out");
  EXPECT_EQ(LoadedModel(dir / "out").at(p + "down_proj").shape,
            (std::vector<std::int64_t>{3, 32, 64}));
  for (const bool swapped : {false, true}) {
    const CompareReport r =
        compare_checkpoints(dir / (swapped ? "out" : "in"), dir / (swapped ? "in" : "out"));
    EXPECT_TRUE(r.shape_mismatch.empty());
    EXPECT_LT(r.relative_error, 0.1);
  }
  EXPECT_FALSE(verify_checkpoint(verify_options(dir / "out", dir / "in")).broken());
}

}  // namespace nvfp4::quantize_stacks_test
