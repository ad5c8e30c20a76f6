#include "nvfp4/verify.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <set>

#include "checkpoint/expect_error.h"
#include "checkpoint/loaded_folder.h"
#include "nvfp4/error.h"

namespace nvfp4 {
namespace {

namespace fs = std::filesystem;

const std::string kQ = "model.layers.0.self_attn.q_proj";
const std::string kUp = "model.layers.1.mlp.up_proj";

/// Where a fault is planted: a healthy model, its source and how it is going to be verified.
struct Bed {
  fs::path source, output;
  VerifyOptions options;

  /// Changes tensors or configs.
  void edit(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(output);
    change(folder);
    fs::remove_all(output);
    folder.write(output);
  }
  void edit_index(const std::function<void(safetensors::Index&)>& change) const {
    const fs::path path = output / "model.safetensors.index.json";
    safetensors::Index index = safetensors::parse_index(read_text(path), path.string());
    change(index);
    write_text(path, safetensors::index_json(index));
  }
  void compare() { options.source = source; }
  /// One linear layer, quantized alone.
  void only(const std::string& module, std::vector<std::int64_t> shape,
            std::vector<float> values = {}) const {
    TestTensor tensor = random_tensor(module + ".weight", std::move(shape));
    if (!values.empty()) tensor.bytes = encode(values, safetensors::DType::bf16);
    fs::remove_all(source);
    fs::remove_all(output);
    write_model(source, {{std::move(tensor)}}, kLlamaConfig);
    quantize_checkpoint(quantize_options(source, output));
  }
  /// A layer of two experts, in compressed-tensors.
  void experts() const {
    fs::remove_all(source);
    fs::remove_all(output);
    std::vector<TestTensor> tensors = {random_tensor("model.norm.weight", {64})};
    for (const char* expert : {"0", "1"})
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        tensors.push_back(random_tensor(
            std::string("model.layers.0.mlp.experts.") + expert + "." + part + ".weight",
            {64, 64}));
    write_model(source, {std::move(tensors)}, kLlamaConfig);
    auto quantize = quantize_options(source, output);
    quantize.format = "compressed-tensors";
    quantize_checkpoint(quantize);
  }
};

using Plant = std::function<void(Bed&)>;

Plant edit(std::function<void(LoadedFolder&)> change) {
  return [change = std::move(change)](Bed& bed) { bed.edit(change); };
}
Plant edit_index(std::function<void(safetensors::Index&)> change) {
  return [change = std::move(change)](Bed& bed) { bed.edit_index(change); };
}
Plant scale_byte(std::uint8_t value) {
  return edit([value](LoadedFolder& f) { f.at(kQ + ".weight_scale").bytes[3] = std::byte{value}; });
}
Plant scalar(const std::string& name, std::function<float(float)> change) {
  return edit([=](LoadedFolder& f) { f.set_scalar(name, change(f.scalar(name))); });
}

/// Row-major scales put into tiles, as a whole tensor of `shape`.
void tile(TestTensor& scales, std::vector<std::int64_t> shape) {
  const std::int64_t rows = scales.spec.shape[0], blocks = scales.spec.shape[1];
  std::vector<std::byte> tiled(
      static_cast<std::size_t>(scale_bytes(ScaleLayout::tiled_128x4, rows, blocks)));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t b = 0; b < blocks; ++b)
      tiled[static_cast<std::size_t>(scale_offset(ScaleLayout::tiled_128x4, r, b, rows, blocks))] =
          scales.bytes[static_cast<std::size_t>(r * blocks + b)];
  scales.spec.shape = std::move(shape);
  scales.bytes = std::move(tiled);
}

/// Rows and columns with norms of their own.
std::vector<float> structured(std::int64_t rows, std::int64_t cols) {
  std::vector<float> x = random_values(rows * cols, "structured", 0.01f);
  const std::vector<float> row = random_values(rows, "row", 0.7f);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    x[static_cast<std::size_t>(i)] *= std::exp(row[static_cast<std::size_t>(i / cols)]);
  return x;
}

TestTensor fp8_tensor(const std::string& name) {
  return {{name, safetensors::DType::f8_e4m3, {64, 64}}, std::vector<std::byte>(64 * 64)};
}

const std::map<std::string, Plant>& plants() {
  static const std::map<std::string, Plant> all = {
      {"interrupted", [](Bed& b) { write_text(b.output / "nvfp4.partial.json", "{}"); }},
      {"unreadable-file",
       [](Bed& b) { fs::resize_file(b.output / "model-00001-of-00003.safetensors", 100); }},
      {"bad-index", [](Bed& b) { write_text(b.output / "model.safetensors.index.json", "{"); }},
      {"no-index", [](Bed& b) { fs::remove(b.output / "model.safetensors.index.json"); }},
      {"index-missing-tensor", edit_index([](safetensors::Index& i) {
         i.weight_map["ghost"] = "model-00001-of-00003.safetensors";
       })},
      {"index-unlisted-tensor",
       edit_index([](safetensors::Index& i) { i.weight_map.erase(kQ + ".weight_scale_2"); })},
      {"index-total-size", edit_index([](safetensors::Index& i) { ++i.total_size; })},
      {"stored-twice",
       edit([](LoadedFolder& f) { f.shard_of("lm_head.weight").push_back(f.at(kQ + ".weight")); })},
      {"missing-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight_scale"); })},
      {"missing-global-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight_scale_2"); })},
      {"orphan-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight"); })},
      {"wrong-dtype", edit([](LoadedFolder& f) {
         f.at(kQ + ".weight_scale").spec.dtype = safetensors::DType::u8;
       })},
      {"wrong-shape", edit([](LoadedFolder& f) {
         f.at(kQ + ".weight_scale").spec.shape = {4, 64};
       })},
      {"swizzled-scales", edit([](LoadedFolder& f) {
         tile(f.at(kQ + ".weight_scale"), {128, 4});
       })},
      {"scales-look-swizzled",
       [](Bed& b) {
         b.only("model.layers.0.mlp.down_proj", {256, 512}, structured(256, 512));
         b.edit([](LoadedFolder& f) {
           tile(f.at("model.layers.0.mlp.down_proj.weight_scale"), {256, 32});
         });
       }},
      {"nibble-order",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) {
           for (std::byte& c : f.at(kQ + ".weight").bytes) c = c << 4 | c >> 4;
         });
       }},
      {"scale-nan", scale_byte(0x7F)},
      {"scale-negative", scale_byte(0xB8)},
      {"scale-zero", scale_byte(0)},
      {"scale-subnormal", edit([](LoadedFolder& f) {
         for (std::byte& s : f.at(kQ + ".weight_scale").bytes) s = std::byte{5};
       })},
      {"global-scale-invalid", scalar(kQ + ".weight_scale_2", [](float) { return std::nanf(""); })},
      {"global-scale-sense", scalar(kQ + ".weight_scale_2", [](float x) { return 1 / x; })},
      {"missing-input-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".input_scale"); })},
      {"unexpected-input-scale", edit([](LoadedFolder& f) {
         f.quantization()["quant_algo"] = "W4A16_NVFP4";
         f.hf_quant["quantization"]["quant_algo"] = "W4A16_NVFP4";
       })},
      {"input-scale-invalid", scalar(kQ + ".input_scale", [](float) { return 0.0f; })},
      {"input-scale-sense", scalar(kQ + ".input_scale", [](float) { return 300.0f; })},
      {"input-scale-default", [](Bed&) {}},
      {"fused-globals", scalar(kQ + ".weight_scale_2", [](float x) { return 2 * x; })},
      {"fused-input-scales", scalar(kQ + ".input_scale", [](float x) { return x / 2; })},
      {"fused-partly", edit([](LoadedFolder& f) {
         for (const char* part : {".weight_scale", ".weight_scale_2", ".input_scale"})
           f.remove(kQ + part);
         f.at(kQ + ".weight") = random_tensor(kQ + ".weight", {64, 64});
         f.quantization()["ignore"].push_back(kQ);
         f.hf_quant["quantization"]["exclude_modules"].push_back(kQ);
       })},
      {"bad-config", [](Bed& b) { write_text(b.output / "config.json", "{"); }},
      {"no-config", [](Bed& b) { fs::remove(b.output / "config.json"); }},
      {"undeclared", edit([](LoadedFolder& f) {
         f.config.erase("quantization_config");
         f.hf_quant = nullptr;
       })},
      {"declared-format",
       edit([](LoadedFolder& f) { f.quantization()["quant_method"] = "compressed-tensors"; })},
      {"declared-only",
       [](Bed& b) {
         const auto config = LoadedFolder(b.output).config;
         fs::remove_all(b.output);
         LoadedFolder plain(b.source);
         plain.config = config;
         plain.write(b.output);
       }},
      {"group-size", edit([](LoadedFolder& f) { f.hf_quant["quantization"]["group_size"] = 32; })},
      {"hf-quant-keys",
       edit([](LoadedFolder& f) { f.hf_quant["quantization"].erase("kv_cache_quant_algo"); })},
      {"configs-disagree",
       edit([](LoadedFolder& f) { f.quantization()["quant_algo"] = "NVFP4_AWQ"; })},
      {"excludes-differ", edit([](LoadedFolder& f) { f.quantization()["ignore"].push_back("x"); })},
      {"excluded-quantized", edit([](LoadedFolder& f) {
         f.hf_quant["quantization"]["exclude_modules"].push_back("*.q_proj");
       })},
      {"excluded-by-substring", edit([](LoadedFolder& f) {
         f.hf_quant["quantization"]["exclude_modules"].push_back("layers.0.self_attn.q_pro");
       })},
      {"kept-not-excluded", edit([](LoadedFolder& f) {
         f.hf_quant["quantization"]["exclude_modules"] = {"*norm", "model.embed_tokens"};
       })},
      {"not-in-quantized-layers", edit([](LoadedFolder& f) {
         f.hf_quant["quantization"]["quantized_layers"][kUp] = {{"quant_algo", "NVFP4"}};
       })},
      {"quantized-layer-absent", edit([](LoadedFolder& f) {
         f.hf_quant["quantization"]["quantized_layers"]["model.layers.9.mlp"] = {
             {"quant_algo", "NVFP4"}};
       })},
      {"mtp-dropped", edit([](LoadedFolder& f) {
         f.config["num_nextn_predict_layers"] = 1;
         f.config["num_hidden_layers"] = 2;
       })},
      {"loader-format", [](Bed& b) { b.options.loader = "transformers"; }},
      {"columns-limit",
       [](Bed& b) {
         b.only("model.layers.0.mlp.down_proj", {64, 96});
         b.options.loader = "llama.cpp";
       }},
      {"rows-limit",
       [](Bed& b) {
         b.only("model.layers.0.mlp.down_proj", {40, 64});
         b.options.loader = "vllm";
       }},
      {"experts-lose-global-scale",
       [](Bed& b) {
         b.experts();
         b.options.loader = "transformers";
       }},
      {"mixed-groups", edit([](LoadedFolder& f) {
         auto& shard = f.shard_of("lm_head.weight");
         shard.push_back(fp8_tensor("extra.weight"));
         shard.push_back({{"extra.weight_scale", safetensors::DType::f32, {}},
                          encode({1}, safetensors::DType::f32)});
       })},
      {"source-missing",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) { f.remove("lm_head.weight"); });
       }},
      {"source-extra",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) {
           f.shard_of("lm_head.weight").push_back(random_tensor("extra", {8}));
         });
       }},
      {"source-differs",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) { f.at("model.norm.weight").bytes[1] ^= std::byte{1}; });
       }},
      {"far-from-source",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) { std::ranges::reverse(f.at(kQ + ".weight").bytes); });
       }},
  };
  return all;
}

std::set<std::string> codes_of(const VerifyReport& report) {
  std::set<std::string> codes;
  for (const Finding& f : report.findings) codes.insert(f.code);
  return codes;
}

std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Finding& f : report.findings) text += f.code + ": " + f.text + "\n";
  return text;
}

const FindingKind& kind_of(const std::string& code) {
  for (const FindingKind& kind : finding_kinds())
    if (kind.code == code) return kind;
  throw std::runtime_error("no kind " + code);
}

class VerifyFault : public testing::TestWithParam<std::string> {};

TEST_P(VerifyFault, IsFound) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  write_tiny_llama(bed.source);
  quantize_checkpoint(quantize_options(bed.source, bed.output));
  bed.options.path = bed.output;
  plants().at(GetParam())(bed);
  const VerifyReport report = verify_checkpoint(bed.options);
  EXPECT_TRUE(codes_of(report).contains(GetParam())) << text_of(report);
  for (const Finding& f : report.findings) {
    EXPECT_FALSE(f.tensor.empty()) << f.code;
    EXPECT_FALSE(f.text.empty() || f.effect.empty() || f.fix.empty()) << f.code;
    EXPECT_EQ(f.text.find('\n'), std::string::npos) << f.text;
  }
  const bool error = kind_of(GetParam()).severity == Severity::error;
  EXPECT_TRUE(report.broken() || !error);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("findings").size(), report.findings.size());
  EXPECT_EQ(json.at("broken"), report.broken());
}

std::vector<std::string> every_code() {
  std::vector<std::string> codes;
  for (const FindingKind& kind : finding_kinds())
    if (!kind.code.starts_with("gguf-")) codes.emplace_back(kind.code);  // gguf/verify_test.cc
  return codes;
}

INSTANTIATE_TEST_SUITE_P(Every, VerifyFault, testing::ValuesIn(every_code()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(Verify, EveryCodeHasAPlantedFaultAndNoOther) {
  std::set<std::string> planted;
  for (const auto& [code, plant] : plants()) planted.insert(code);
  const auto codes = every_code();
  EXPECT_EQ(planted, std::set<std::string>(codes.begin(), codes.end()));
  EXPECT_EQ(codes.size(), planted.size()) << "a code twice";
}

TEST(Verify, TheDocumentationListsEveryCodeAsItIs) {
  const std::string docs = read_text(fs::path(NVFP4_SOURCE_DIR) / "docs" / "verify.md");
  std::size_t rows = 0;
  for (std::size_t at = docs.find("\n| `"); at != docs.npos; at = docs.find("\n| `", at + 1))
    ++rows;
  EXPECT_EQ(rows, finding_kinds().size());
  for (const FindingKind& k : finding_kinds()) {
    const std::string row =
        "| `" + std::string(k.code) + "` | " + std::string(severity_name(k.severity)) + " | " +
        std::string(k.meaning) + " | " + std::string(k.effect) + " | " + std::string(k.fix) + " |";
    EXPECT_NE(docs.find(row), docs.npos) << row;
  }
}

TEST(Verify, StaysSilentOnWhatWeWrite) {
  const TempDir dir;
  write_tiny_llama(dir / "llama");
  SampleOptions sample;
  sample.output = dir / "deepseek";
  sample.arch = "deepseek-v3";
  sample.scale = 0.03125;
  sample.shards = 2;
  sample_checkpoint(sample);
  for (const char* model : {"llama", "deepseek"})
    for (const char* format : {"modelopt", "compressed-tensors"})
      for (const Scheme scheme : {Scheme::nvfp4, Scheme::nvfp4a16}) {
        auto options = quantize_options(dir / model, dir / "out");
        options.format = format;
        options.scheme = scheme;
        options.overwrite = true;
        quantize_checkpoint(options);
        VerifyOptions verify;
        verify.path = options.output;
        verify.source = options.input;
        verify.loader = "tensorrt-llm";
        if (options.format == "compressed-tensors") verify.loader = "transformers";
        const VerifyReport report = verify_checkpoint(verify);
        std::set<std::string> expected;
        if (scheme == Scheme::nvfp4) expected = {"input-scale-default"};
        if (verify.loader == "transformers" && std::string(model) == "deepseek")
          expected.insert("experts-lose-global-scale");  // once, and of nothing else
        EXPECT_EQ(codes_of(report), expected) << model << format << text_of(report);
        EXPECT_EQ(report.format, format);
        EXPECT_EQ(report.scheme, scheme == Scheme::nvfp4 ? "nvfp4" : "nvfp4a16");
        EXPECT_GT(report.quantized, 0);
      }
  VerifyOptions verify;
  verify.path = dir / "llama";
  EXPECT_TRUE(verify_checkpoint(verify).findings.empty()) << "not quantized, not broken";
}

TEST(Verify, ExpertsLoseTheirGlobalScalesInTransformersOnly) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  bed.experts();
  const std::string code = "experts-lose-global-scale";
  for (const char* loader : {"", "vllm", "sglang", "transformers"}) {
    bed.options.loader = loader;
    const VerifyReport report = verify_checkpoint(bed.options);
    const std::string text = text_of(report);
    EXPECT_EQ(codes_of(report).contains(code), bed.options.loader == "transformers") << text;
    const auto found = std::ranges::count(report.findings, code, &Finding::code);
    EXPECT_LE(found, 1) << "once for the layer: " << text;
  }
  bed.edit([](LoadedFolder& f) {
    for (const char* expert : {"0", "1"})
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        f.set_scalar(std::string("model.layers.0.mlp.experts.") + expert + "." + part +
                         ".weight_global_scale",
                     1);
  });
  EXPECT_FALSE(codes_of(verify_checkpoint(bed.options)).contains(code)) << "1 is lost without harm";
}

TEST(Verify, TellsWhatIsWrongWithScalesByTheSource) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  const std::string down = "model.layers.0.mlp.down_proj";
  bed.options.path = bed.output;
  bed.compare();
  bed.only(down, {128, 512}, structured(128, 512));
  bed.edit([&](LoadedFolder& f) { tile(f.at(down + ".weight_scale"), {128, 32}); });
  EXPECT_TRUE(codes_of(verify_checkpoint(bed.options)).contains("swizzled-scales"));
  bed.only(down, {128, 512}, structured(128, 512));
  bed.edit([&](LoadedFolder& f) {
    tile(f.at(down + ".weight_scale"), {128, 32});
    for (std::byte& c : f.at(down + ".weight").bytes) c = c << 4 | c >> 4;
  });
  EXPECT_TRUE(codes_of(verify_checkpoint(bed.options)).contains("nibble-order"));
}

TEST(Verify, AManyChunkTensorHasItsLastScaleChecked) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  bed.only("m", {1024, 8192});  // 512 K blocks, two chunks
  bed.edit([&](LoadedFolder& f) { f.at("m.weight_scale").bytes.back() = std::byte{0xFF}; });
  const VerifyReport report = verify_checkpoint(bed.options);
  EXPECT_TRUE(codes_of(report).contains("scale-nan"));
  EXPECT_NE(text_of(report).find("1 of 524288"), std::string::npos) << text_of(report);
}

TEST(Verify, ZeroBlocksMayHaveAScaleOfZero) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  bed.only("m", {32, 64}, std::vector<float>(32 * 64));
  bed.edit([&](LoadedFolder& f) { f.at("m.weight_scale").bytes[0] = std::byte{0}; });
  EXPECT_FALSE(codes_of(verify_checkpoint(bed.options)).contains("scale-zero"));
}

TEST(Verify, SurvivesFuzzedConfigsIndexesAndHeaders) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  write_tiny_llama(bed.source);
  quantize_checkpoint(quantize_options(bed.source, bed.output));
  bed.options.path = bed.output;
  std::mt19937 random(11);
  for (const std::string name :
       {"config.json", "hf_quant_config.json", "model.safetensors.index.json",
        "model-00002-of-00003.safetensors"}) {
    const std::string good = read_text(bed.output / name);
    for (int i = 0; i < 60; ++i) {
      std::string text = good;
      for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
        const std::size_t reach = std::min<std::size_t>(text.size(), 4000);  // a shard's header
        const std::size_t at = random() % reach;
        if (random() % 3 == 0)
          text.erase(at, random() % 40);
        else if (random() % 2 == 0)
          text[at] = static_cast<char>(random());
        else
          text.insert(at, text.substr(random() % reach, random() % 60));
      }
      write_text(bed.output / name, text);
      EXPECT_NO_THROW(verify_checkpoint(bed.options)) << name << '\n' << text.substr(0, 4000);
    }
    write_text(bed.output / name, good);
  }
}

TEST(Verify, LongNamesMeetExpressionsWithoutEndlessRecursion) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  write_tiny_llama(bed.source);
  quantize_checkpoint(quantize_options(bed.source, bed.output));
  bed.options.path = bed.output;
  bed.edit([](LoadedFolder& f) {
    f.shard_of("lm_head.weight")
        .push_back(random_tensor(std::string(1'000'000, 'x') + ".weight", {16, 16}));
    f.quantization()["ignore"] = {"re:.*y"};
    f.hf_quant["quantization"]["exclude_modules"] = {"re:(.*x)*.*y"};
  });
  EXPECT_TRUE(codes_of(verify_checkpoint(bed.options)).contains("kept-not-excluded"));
}

TEST(Verify, RefusesAnUnknownLoaderAndANonexistentPath) {
  const TempDir dir;
  VerifyOptions options;
  options.path = dir / "nowhere";
  expect_error<IoError>([&] { verify_checkpoint(options); }, {"nowhere"});
  options.path = dir.path();
  expect_error<IoError>([&] { verify_checkpoint(options); }, {".safetensors"});
  options.loader = "x";
  expect_error<ValueError>([&] { verify_checkpoint(options); }, {"loader = x", "vllm"});
}

}  // namespace
}  // namespace nvfp4
