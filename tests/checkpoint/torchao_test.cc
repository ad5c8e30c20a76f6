// TorchAO's tensors: parts of a weight, and metadata that says how they lie.
#include "checkpoint/checkpoints.h"

namespace nvfp4::torchao_test {

using enum safetensors::DType;

std::string entry(bool tiled) {
  return std::string(R"({"_type": "NVFP4Tensor", "_data": {"is_swizzled_scales": )") +
         (tiled ? "true" : "false") +
         R"(, "block_size": 16}, "_tensor_data_names": ["per_tensor_scale", "qdata", "scale"]})";
}

/// The weights of a quantized tiny llama under TorchAO's names, `tiled` or not.
void write_torchao(const fs::path& from, const fs::path& to, bool tiled, bool described) {
  LoadedFolder model(from);
  safetensors::Metadata metadata = {{"tensor_names", "[]"}};
  for (auto& [file, tensors] : model.shards)
    for (TestTensor& t : tensors) {
      const std::string name = t.spec.name;
      const auto rename = [&](std::string_view suffix, std::string_view as) {
        if (name.ends_with(suffix))
          t.spec.name = name.substr(0, name.size() - suffix.size()) + std::string(as);
      };
      if (t.spec.dtype == u8) {
        if (described) metadata[name] = entry(tiled);
        rename(".weight", "._weight_qdata");
      }
      rename(".weight_scale_2", "._weight_per_tensor_scale");
      rename(".input_scale", "._weight_act_per_tensor_scale");
      if (!name.ends_with(".weight_scale")) continue;
      rename(".weight_scale", "._weight_scale");
      if (!tiled) continue;
      const std::int64_t rows = t.spec.shape[0], blocks = t.spec.shape[1];
      std::vector<std::byte> tiles(
          static_cast<std::size_t>(scale_bytes(ScaleLayout::tiled_128x4, rows, blocks)));
      relayout_scales({reinterpret_cast<const std::uint8_t*>(t.bytes.data()), t.bytes.size()},
                      ScaleLayout::linear,
                      {reinterpret_cast<std::uint8_t*>(tiles.data()), tiles.size()},
                      ScaleLayout::tiled_128x4, rows, blocks);
      t.bytes = std::move(tiles);
      t.spec.shape = {(rows + 127) / 128 * 32, (blocks + 3) / 4 * 16};
    }
  fs::create_directories(to);
  for (const auto& [file, tensors] : model.shards) {
    std::vector<safetensors::TensorSpec> specs;
    for (const TestTensor& t : tensors) specs.push_back(t.spec);
    safetensors::Writer writer(to / file, specs, metadata);
    for (std::size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, tensors[i].bytes);
    writer.commit();
  }
  write_text(to / "config.json", R"({"model_type": "llama"})");
}

TEST(TorchAo, EqualsTheModelItWasMadeOf) {
  const TempDir dir;
  write_tiny_llama(dir / "plain");
  quantize_checkpoint(dir / "plain", dir / "modelopt");
  for (const bool tiled : {false, true})
    for (const bool described : {false, true}) {
      fs::remove_all(dir / "ao");
      fs::remove_all(dir / "back");
      write_torchao(dir / "modelopt", dir / "ao", tiled, described);
      convert(dir / "ao", dir / "back", "modelopt");
      expect_same_tensors(dir / "modelopt", dir / "back");
      for (const auto& each : fs::directory_iterator(dir / "back"))
        if (each.path().extension() == ".safetensors") {
          const auto metadata = safetensors::File::open(each.path()).metadata();
          EXPECT_FALSE(metadata.contains("tensor_names"));
          for (const auto& [key, value] : metadata)
            EXPECT_THAT(value, Not(HasSubstr("NVFP4Tensor"))) << key;
        }
    }
}

/// A weight without a scale of its whole: block scales alone.
TEST(TorchAo, AScaleOfTheTensorMayBeMissing) {
  const TempDir dir;
  const std::vector<std::uint8_t> codes(16 * 16, 0x21), scales(16 * 2, 0x40);  // 2.0
  write_shard(dir / "a.safetensors", {stored("m._weight_qdata", u8, {16, 16}, codes),
                                      stored("m._weight_scale", f8_e4m3, {16, 2}, scales)});
  convert(dir / "a.safetensors", dir / "out", "bf16");
  const LoadedModel model(dir / "out");
  const LoadedModel::Tensor& w = model.at("m.weight");
  EXPECT_EQ(w.shape, (std::vector<std::int64_t>{16, 32}));
  ASSERT_EQ(w.dtype, bf16);
  std::uint16_t values[2];
  std::memcpy(values, w.bytes.data(), sizeof values);
  EXPECT_EQ(BF16{values[0]}.to_float(), 1.0f);  // 0.5 in the low nibble, times 2
  EXPECT_EQ(BF16{values[1]}.to_float(), 2.0f);
}

/// Stacks [2, 128, 32] with a global scale for each expert, linear and in tiles.
TEST(TorchAo, StackHasGlobalScalePerExpert) {
  const TempDir dir;
  const std::vector<std::uint8_t> codes(2 * 128 * 16, 0x21);
  const std::vector<float> globals = {0.5f, 0.25f};
  for (const bool tiled : {false, true}) {
    fs::remove_all(dir / "out");
    const std::vector<std::int64_t> shape =
        tiled ? std::vector<std::int64_t>{2, 32, 16} : std::vector<std::int64_t>{2, 128, 2};
    const std::vector<std::uint8_t> scales(tiled ? 2 * 32 * 16 : 2 * 128 * 2, 0x40);  // 2.0
    write_shard(dir / "a.safetensors",
                {stored("m.experts._down_proj_qdata", u8, {2, 128, 16}, codes),
                 stored("m.experts._down_proj_scale", f8_e4m3, shape, scales),
                 stored("m.experts._down_proj_per_tensor_scale", f32, {2, 1, 1}, globals)});
    convert(dir / "a.safetensors", dir / "out", "modelopt");
    const LoadedModel model(dir / "out");
    for (int expert = 0; expert < 2; ++expert) {
      const std::string name = fmt::format("m.experts.{}.down_proj", expert);
      EXPECT_EQ(model.at(name + ".weight").shape, (std::vector<std::int64_t>{128, 16}));
      float global;
      std::memcpy(&global, model.at(name + ".weight_scale_2").bytes.data(), sizeof global);
      EXPECT_EQ(global, globals[static_cast<std::size_t>(expert)]);
      for (const std::byte scale : model.at(name + ".weight_scale").bytes)
        ASSERT_EQ(scale, std::byte{0x40});
    }
  }
}

}  // namespace nvfp4::torchao_test
