#include "checkpoint/checkpoints.h"

namespace nvfp4::inspect_test {

using enum safetensors::DType;
using Tensors = std::vector<TestTensor>;

const std::vector<std::uint8_t> kCodes(2 * 16, 0x9F);             // -0.5 above, -6 below
const std::vector<std::uint8_t> kScales{0x38, 0x01, 0x7E, 0x40};  // 1, 2^-9, 448, 2

Tensors layer() { return modelopt_layer("m.q", 2, 32, kCodes, kScales, 0.25f); }

InspectReport inspect(const std::filesystem::path& path) {
  InspectOptions options;
  options.path = path;
  return inspect_checkpoint(options);
}

struct Inspect : FolderTest {};

TEST_F(Inspect, ReadsAModelOptTensor) {
  Tensors tensors = layer();
  tensors.push_back(stored_f32("m.q.input_scale", {}, {0.5f}));
  write_shard(dir / "model.safetensors", tensors);
  write_text(dir / "config.json", R"({"model_type": "llama"})");

  const InspectReport report = inspect(dir.path());
  EXPECT_EQ(report.format, "modelopt");
  EXPECT_EQ(report.scheme, "w4a4");
  EXPECT_EQ(report.model_type, "llama");
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.parameters, 64u);
  EXPECT_EQ(report.bytes, 32u + 4 + 4 + 4);
  ASSERT_EQ(report.tensors.size(), 1u);
  const InspectedTensor& t = report.tensors[0];
  EXPECT_EQ(t.name, "m.q.weight");
  EXPECT_EQ(t.scheme, "nvfp4");
  EXPECT_EQ(t.dtype, "U8");
  EXPECT_EQ(t.shape, (std::vector<std::int64_t>{2, 32}));
  EXPECT_EQ(t.bytes, report.bytes);
  EXPECT_EQ(t.file, "model.safetensors");
  EXPECT_EQ(t.global_scale, 0.25);
  EXPECT_EQ(t.input_scale, 0.5);
  EXPECT_EQ(t.scale_min, 0x1p-9);
  EXPECT_EQ(t.scale_max, 448);
  std::vector<std::uint64_t> codes(16, 0);
  codes[0x9] = codes[0xF] = 32;
  EXPECT_EQ(t.codes, codes);
  std::vector<std::uint64_t> scales(256, 0);
  for (const std::uint8_t scale : kScales) ++scales[scale];
  EXPECT_EQ(report.scales, scales);
  EXPECT_EQ(nlohmann::json::parse(to_json(report)).at("scales"), scales);
}

TEST_F(Inspect, TurnsTheDivisorsOfCompressedTensorsIntoMultipliers) {
  Tensors tensors = compressed_tensors_layer("m.q", 2, 32, kCodes, kScales, 8);
  write_shard(dir / "model.safetensors", tensors);
  EXPECT_EQ(inspect(dir.path()).scheme, "w4a16");

  tensors.push_back(stored_f32("m.q.input_global_scale", {1}, {4}));
  write_shard(dir / "model.safetensors", tensors);
  const InspectReport report = inspect(dir.path());
  EXPECT_EQ(report.format, "compressed-tensors");
  EXPECT_EQ(report.scheme, "w4a4");
  ASSERT_EQ(report.tensors.size(), 1u);
  EXPECT_EQ(report.tensors[0].name, "m.q.weight");
  EXPECT_EQ(report.tensors[0].global_scale, 0.125);
  EXPECT_EQ(report.tensors[0].input_scale, 0.25);
}

TEST_F(Inspect, EveryCodeIsCountedOnAnyThreads) {
  constexpr std::int64_t kRows = 1030, kCols = 16384;  // 8.4 MB of codes
  std::vector<std::uint8_t> codes(kRows * kCols / 2), scales(kRows * kCols / 16, 0x38);
  std::vector<std::uint64_t> expected(16);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(i * i >> 7);
    ++expected[codes[i] & 15];
    ++expected[codes[i] >> 4];
  }
  scales.back() = 0x7E;
  write_shard(dir / "a.safetensors", modelopt_layer("m", kRows, kCols, codes, scales, 1));
  for (const int n : {1, 3}) {
    set_threads(n);
    const InspectReport report = inspect(dir / "a.safetensors");
    EXPECT_EQ(report.tensors.at(0).codes, expected);
    EXPECT_EQ(report.tensors.at(0).scale_max, 448);
    EXPECT_EQ(report.tensors.at(0).scale_min, 1);
  }
  set_threads(0);
}

TEST_F(Inspect, NamesFormsThatAreNotRead) {
  write_shard(dir / "a.safetensors",
              {stored("m.weight", f8_e4m3, {1, 16}, std::vector<std::uint8_t>(16)),
               stored("n.weight_packed", i32, {1, 2}, std::vector<std::int32_t>(2)),
               stored("n.weight_scale", f16, {1, 1}, std::vector<std::uint16_t>(1)),
               stored("o.weight", u8, {16}, std::vector<std::uint8_t>(16))});
  const InspectReport report = inspect(dir / "a.safetensors");
  EXPECT_EQ(report.tensors.size(), 4u);
  EXPECT_EQ(report.format,
            "codes without scales that are known (not read), packed integers of compressed-tensors "
            "(not read)");
  EXPECT_EQ(report.scheme, "");
}

TEST_F(Inspect, OnlyTheRequestedTensorIsRead) {
  Tensors tensors = layer();
  tensors.push_back(stored_f32("m.norm.weight", {2}, {1, 1}));
  write_shard(dir / "model.safetensors", tensors);
  InspectOptions options;
  options.path = dir.path();
  options.tensor = "m.q";
  options.histograms = false;
  const InspectReport report = inspect_checkpoint(options);
  ASSERT_EQ(report.tensors.size(), 1u);
  EXPECT_EQ(report.tensors[0].name, "m.q.weight");
  EXPECT_TRUE(report.tensors[0].codes.empty());
  EXPECT_EQ(report.parameters, 66u) << "the whole checkpoint";
  options.tensor = "m.k";
  expect_error<ValueError>([&] { inspect_checkpoint(options); }, {"m.k", dir.path().string()});
}

TEST_F(Inspect, ReadsAnInterruptedOutputAsIncomplete) {
  write_shard(dir / "model-00002-of-00002.safetensors", layer());
  write_text(dir / "nvfp4.partial.json", "{}");
  const InspectReport report = inspect(dir.path());
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.tensors.size(), 1u);
  std::filesystem::remove(dir / "model-00002-of-00002.safetensors");
  EXPECT_FALSE(inspect(dir.path()).complete);
}

TEST_F(Inspect, FollowsTheIndexAndChecksIt) {
  write_shard(dir / "a.safetensors", layer());
  write_shard(dir / "b.safetensors", {stored_f32("n", {1}, {1})});
  write_shard(dir / "stale.safetensors", {stored_f32("n", {1}, {2})});
  safetensors::Index index;
  for (const char* name : {"m.q.weight", "m.q.weight_scale", "m.q.weight_scale_2"})
    index.weight_map[name] = "a.safetensors";
  index.weight_map["n"] = "b.safetensors";
  const std::filesystem::path path = dir / "model.safetensors.index.json";
  write_text(path, safetensors::index_json(index));
  EXPECT_EQ(inspect(dir.path()).tensors.size(), 2u);

  index.weight_map["n"] = "a.safetensors";
  write_text(path, safetensors::index_json(index));
  expect_error<FormatError>([&] { inspect(dir.path()); }, {"'n'", "a.safetensors"});
  std::filesystem::remove(path);
  expect_error<FormatError>([&] { inspect(dir.path()); }, {"'n'", "stale.safetensors"});
}

TEST_F(Inspect, SaysWhatCannotBeOpened) {
  expect_error<IoError>([&] { inspect(dir / "nowhere"); }, {"nowhere"});
  expect_error<IoError>([&] { inspect(dir.path()); }, {dir.path().string(), ".safetensors"});
}

TEST_F(Inspect, WritesJsonWithoutNaN) {
  Tensors tensors = compressed_tensors_layer("m.q", 2, 32, kCodes, {0x38, 0x7F, 1, 1}, 0);
  tensors.push_back(stored_f32("n", {1}, {1}));
  write_shard(dir / "a.safetensors", tensors);
  const InspectReport report = inspect(dir / "a.safetensors");
  EXPECT_TRUE(std::isnan(report.tensors[0].scale_max)) << "a NaN scale must show";
  const auto json = nlohmann::json::parse(to_json(report));
  const auto& t = json.at("tensors").at(0);
  EXPECT_TRUE(t.at("scale_max").is_null());
  EXPECT_TRUE(t.at("global_scale").is_null()) << "1 / 0";
  EXPECT_TRUE(t.at("input_scale").is_null());
  EXPECT_EQ(t.at("codes").size(), 16u);
  EXPECT_EQ(t.at("shape"), (std::vector<int>{2, 32}));
  EXPECT_FALSE(json.at("tensors").at(1).contains("codes"));
  EXPECT_EQ(json.at("parameters"), 65);
}

}  // namespace nvfp4::inspect_test
