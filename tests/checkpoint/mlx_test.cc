// NVFP4 of MLX: words of eight codes, scales as bytes, and no global scale.
#include "checkpoint/checkpoints.h"

namespace nvfp4::mlx_test {

using enum safetensors::DType;

struct Mlx : FolderTest {};

std::vector<float> bf16_of(const LoadedModel::Tensor& t) {
  std::vector<float> values(t.bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, t.bytes.data() + 2 * i, 2);
    values[i] = BF16{bits}.to_float();
  }
  return values;
}

/// Names of the tensors of one weight in a file.
struct Names {
  std::string codes, scales, global, read;
};

TEST_F(Mlx, ReadsEveryForm) {
  const Names rows[] = {
      {"m.weight", "m.scales", "", "m.weight"},
      {"m.weight", "m.weight.scale", "", "m.weight"},
      {"m.weight", "m.weight.scale", "m.weight.global_scale", "m.weight"},
  };
  // The first column is in the lowest bits: 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, and again.
  const std::vector<std::uint32_t> words(64 * 4, 0x97654321);
  const std::vector<std::uint8_t> scales(64 * 2, 0x40);  // 2.0
  const float global = 0.25f;
  for (const Names& names : rows) {
    SCOPED_TRACE(names.scales + " " + names.global);
    fs::remove_all(dir / "out");
    std::vector<TestTensor> tensors = {stored(names.codes, u32, {64, 4}, words),
                                       stored(names.scales, u8, {64, 2}, scales)};
    if (!names.global.empty())
      tensors.push_back(stored(names.global, f32, {}, std::vector<float>{global}));
    write_shard(dir / "a.safetensors", tensors);
    convert(dir / "a.safetensors", dir / "out", "bf16");
    const LoadedModel model(dir / "out");
    const LoadedModel::Tensor& w = model.at(names.read);
    EXPECT_EQ(w.shape, (std::vector<std::int64_t>{64, 32}));
    const std::vector<float> values = bf16_of(w);
    const float scale = names.global.empty() ? 2 : 2 * global;
    const float codes[] = {0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f};
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], codes[i % 8] * scale) << i;
  }
}

TEST_F(Mlx, StacksBecomeExpertsOfTheFamily) {
  const std::pair<const char*, std::vector<std::string>> rows[] = {
      {"mlp.switch_mlp.down_proj", {"mlp.experts.0.down_proj", "mlp.experts.1.down_proj"}},
      {"block_sparse_moe.switch_mlp.gate_proj",
       {"block_sparse_moe.experts.0.w1", "block_sparse_moe.experts.1.w1"}},
      {"block_sparse_moe.switch_mlp.down_proj",
       {"block_sparse_moe.experts.0.w2", "block_sparse_moe.experts.1.w2"}},
      {"block_sparse_moe.switch_mlp.up_proj",
       {"block_sparse_moe.experts.0.w3", "block_sparse_moe.experts.1.w3"}},
  };
  const std::vector<std::uint32_t> words(2 * 64 * 4, 0x97654321);
  const std::vector<std::uint8_t> scales(2 * 64 * 2, 0x40);
  for (const auto& [stack, experts] : rows) {
    fs::remove_all(dir / "out");
    write_shard(dir / "a.safetensors",
                {stored(fmt::format("{}.weight", stack), u32, {2, 64, 4}, words),
                 stored(fmt::format("{}.scales", stack), u8, {2, 64, 2}, scales)});
    convert(dir / "a.safetensors", dir / "out", "modelopt");
    const LoadedModel model(dir / "out");
    for (const std::string& expert : experts) {
      EXPECT_EQ(model.at(expert + ".weight").shape, (std::vector<std::int64_t>{64, 16}));
      EXPECT_EQ(model.at(expert + ".weight_scale").dtype, f8_e4m3);
    }
  }
}

TEST_F(Mlx, QuantizesWithGlobalScaleOne) {
  write_tiny_llama(dir / "source");
  const QuantizeReport report =
      quantize_checkpoint(dir / "source", dir / "mlx", {"--format", "mlx"});
  EXPECT_EQ(report.scheme, Scheme::w4a16);
  ASSERT_FALSE(report.warnings.empty());
  EXPECT_THAT(report.warnings.back(), HasSubstr("with a global scale"));
  const std::string scheme = "scheme w4a4 becomes w4a16: mlx has no scales of inputs";
  EXPECT_THAT(report.warnings, testing::Contains(scheme));

  const LoadedFolder folder(dir / "mlx");
  const Json expected = {{"group_size", 16}, {"bits", 4}, {"mode", "nvfp4"}};
  EXPECT_EQ(folder.config.at("quantization"), expected);
  EXPECT_EQ(folder.config.at("quantization_config"), expected);
  EXPECT_TRUE(folder.hf_quant.is_null());
  EXPECT_EQ(findings_of(dir / "mlx"), "");
  const LoadedModel in(dir / "source"), out(dir / "mlx");
  const std::string name = "model.layers.0.self_attn.q_proj";
  const LoadedModel::Tensor &w = in.at(name + ".weight"), &codes = out.at(name + ".weight"),
                            &scales = out.at(name + ".scales");
  const std::int64_t rows = w.shape[0], cols = w.shape[1];
  EXPECT_EQ(codes.dtype, u32);
  EXPECT_EQ(codes.shape, (std::vector<std::int64_t>{rows, cols / 8}));
  EXPECT_EQ(scales.dtype, u8);
  EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{rows, cols / 16}));
  const GlobalScale one;
  QuantizeOptions by_hand;
  by_hand.quantizer = Quantizer::mse;
  by_hand.global = {&one, 1};
  std::vector<std::uint8_t> expected_codes(codes.bytes.size()),
      expected_scales(scales.bytes.size());
  float global = 0;
  quantize_into(MatrixView(w.bytes.data(), DType::bf16, rows, cols),
                QuantizedSpan({.rows = rows, .cols = cols}, expected_codes.data(),
                              expected_scales.data(), &global),
                by_hand);
  EXPECT_EQ(std::memcmp(codes.bytes.data(), expected_codes.data(), expected_codes.size()), 0);
  EXPECT_EQ(std::memcmp(scales.bytes.data(), expected_scales.data(), expected_scales.size()), 0);
  for (const auto& [file, tensors] : folder.shards)
    for (const TestTensor& t : tensors) EXPECT_EQ(t.spec.name.find("scale_2"), std::string::npos);

  convert(dir / "mlx", dir / "modelopt", "modelopt");
  EXPECT_FALSE(LoadedFolder(dir / "modelopt").config.contains("quantization"));
  EXPECT_EQ(LoadedFolder(dir / "modelopt").scalar(name + ".weight_scale_2"), 1);
  convert(dir / "modelopt", dir / "back", "mlx");
  expect_same_tensors(dir / "mlx", dir / "back");
  EXPECT_EQ(LoadedFolder(dir / "back").config.at("quantization"), expected);
}

/// Experts that lie in two shards become stacks, with the bytes of single experts one behind
/// another.
TEST_F(Mlx, ExpertsBecomeStacksOfTheLayer) {
  std::vector<TestTensor> shards[2];
  for (int e = 0; e < 3; ++e)
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      shards[e / 2].push_back(random_tensor(
          fmt::format("model.layers.0.mlp.experts.{}.{}.weight", e, name),
          name[0] == 'd' ? std::vector<std::int64_t>{64, 32} : std::vector<std::int64_t>{32, 64}));
  for (const char* type : {"qwen3_moe", "dots1"}) {  // mlx-lm has another name for those of Dots
    SCOPED_TRACE(type);
    fs::remove_all(dir / "out");
    fs::remove_all(dir / "back");
    write_model(dir / type, {shards[0], shards[1]}, fmt::format(R"({{"model_type": "{}"}})", type));
    quantize_checkpoint(dir / type, dir / "out", {"--format", "mlx"});
    EXPECT_EQ(findings_of(dir / "out"), "");
    const LoadedModel model(dir / "out");
    const bool stacks = type != std::string("dots1");
    EXPECT_EQ(model.tensors.size(), stacks ? 6 : 18);
    convert(dir / "out", dir / "back", "modelopt");
    const LoadedModel singles(dir / "back");
    EXPECT_EQ(singles.at("model.layers.0.mlp.experts.2.down_proj.weight").shape,
              (std::vector<std::int64_t>{64, 16}));
    if (!stacks) continue;
    for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
      std::vector<std::byte> codes, scales;
      for (int e = 0; e < 3; ++e) {
        const std::string expert = fmt::format("model.layers.0.mlp.experts.{}.{}", e, name);
        for (const auto& [all, end] : {std::pair{&codes, ".weight"}, {&scales, ".weight_scale"}}) {
          const std::vector<std::byte>& bytes = singles.at(expert + end).bytes;
          all->insert(all->end(), bytes.begin(), bytes.end());
        }
      }
      const std::string stack = "model.layers.0.mlp.switch_mlp." + name;
      const std::int64_t rows = name[0] == 'd' ? 64 : 32, cols = 96 - rows;
      EXPECT_EQ(model.at(stack + ".weight").shape, (std::vector<std::int64_t>{3, rows, cols / 8}));
      EXPECT_EQ(model.at(stack + ".scales").shape, (std::vector<std::int64_t>{3, rows, cols / 16}));
      EXPECT_EQ(model.at(stack + ".weight").bytes, codes);
      EXPECT_EQ(model.at(stack + ".scales").bytes, scales);
    }
    convert(dir / "back", dir / "again", "mlx");
    expect_same_tensors(dir / "out", dir / "again");
  }
}

TEST_F(Mlx, ExpertsOfMixtralAreGateDownAndUp) {
  const std::string layer = "model.layers.0.block_sparse_moe.";
  TestTensor gate = random_tensor(layer + "experts.0.w1.weight", {32, 64}), up = gate;
  up.spec.name = layer + "experts.0.w3.weight";
  std::ranges::fill(up.bytes, std::byte{0});
  write_model(dir / "source", {{gate, random_tensor(layer + "experts.0.w2.weight", {64, 32}), up}},
              R"({"model_type": "mixtral"})");
  quantize_checkpoint(dir / "source", dir / "out", {"--format", "mlx"});
  const LoadedModel model(dir / "out");
  const auto is_zero = [&](const char* name) {
    return std::ranges::count(model.at(layer + "switch_mlp." + name + ".weight").bytes,
                              std::byte{0}) == 32 * 64 / 2;
  };
  EXPECT_TRUE(is_zero("up_proj"));
  EXPECT_FALSE(is_zero("gate_proj") || is_zero("down_proj"));
  EXPECT_EQ(model.at(layer + "switch_mlp.down_proj.weight").shape,
            (std::vector<std::int64_t>{1, 64, 4}));
}

TEST_F(Mlx, FoldsGlobalScaleThatIsPowerOfTwo) {
  write_tiny_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "mlx", {"--format", "mlx"});
  convert(dir / "mlx", dir / "one", "modelopt");
  LoadedFolder model(dir / "one");
  const std::string name = "model.layers.0.self_attn.q_proj";
  for (const char* other : {"q", "k", "v"}) {
    const std::string module = fmt::format("model.layers.0.self_attn.{}_proj", other);
    model.set_scalar(module + ".weight_scale_2", 0x1p-6f);
    for (std::byte& scale : model.at(module + ".weight_scale").bytes) {
      const float value = E4M3{std::to_integer<std::uint8_t>(scale)}.to_float() * 0x1p6f;
      scale = std::byte{E4M3::from_float(value).bits};
    }
  }
  model.write(dir / "folded");
  convert(dir / "folded", dir / "back", "mlx");
  expect_same_tensors(dir / "mlx", dir / "back");

  model.at(name + ".weight_scale").bytes[0] = std::byte{0x09};  // nine eighths of 2^-6
  model.write(dir / "other");
  EXPECT_THROW(convert(dir / "other", dir / "refused", "mlx"), UnsupportedError);
}

TEST_F(Mlx, ConversionRoundsByLittle) {
  write_tiny_llama(dir / "source");
  quantize_checkpoint(dir / "source", dir / "modelopt");
  ConvertOptions options;
  options.input = dir / "modelopt";
  options.output = dir / "mlx";
  options.to = "mlx";
  options.allow.round = true;
  for (const TensorReport& t : convert_checkpoint(options).tensors)
    EXPECT_LE(t.squared_error, 0.05 * t.squared_norm) << t.name;
}

}  // namespace nvfp4::mlx_test
