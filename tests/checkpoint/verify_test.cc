#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

namespace nvfp4::checkpoint_verify_test {

using namespace faults;
namespace fs = std::filesystem;

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

TEST(Verify, ASourceThatTheWeightsMatchWithdrawsGuesses) {
  for (const char* guess : {"scales-look-swizzled", "global-scale-sense"}) {
    const TempDir dir;
    Bed bed{dir / "source", dir / "output", {}};
    write_tiny_llama(bed.source);
    quantize_checkpoint(quantize_options(bed.source, bed.output));
    bed.options.path = bed.output;
    plants().at(guess)(bed);
    EXPECT_TRUE(codes_of(verify_checkpoint(bed.options)).contains(guess));
    bed.compare();
    EXPECT_TRUE(codes_of(verify_checkpoint(bed.options)).contains(guess)) << "it was right";
    // As if the weights had always been like that.
    ConvertOptions convert;
    convert.input = bed.output;
    convert.output = dir / "decoded";
    convert.to = "bf16";
    convert.allow.broken_scales = true;
    convert_checkpoint(convert);
    bed.options.source = convert.output;
    const VerifyReport report = verify_checkpoint(bed.options);
    EXPECT_FALSE(codes_of(report).contains(guess)) << text_of(report);
  }
}

TEST(Verify, EveryCodeHasAPlantedFaultAndNoOther) {
  std::set<std::string> planted;
  for (const auto& [code, plant] : plants()) planted.insert(code);
  const auto codes = every_code();
  EXPECT_EQ(planted, std::set<std::string>(codes.begin(), codes.end()));
  EXPECT_EQ(codes.size(), planted.size()) << "a code twice";
}

TEST(Verify, ThePageListsEveryCodeOnce) {
  const std::string page = read_text(fs::path(NVFP4_SOURCE_DIR) / "docs" / "verify.md");
  std::size_t lines = 0;
  for (std::size_t at = page.find("\n- `"); at != page.npos; at = page.find("\n- `", at + 1))
    ++lines;
  EXPECT_EQ(lines, finding_kinds().size());
  for (const FindingKind& k : finding_kinds()) {
    const std::string line = "\n- `" + std::string(k.code) + "` (" +
                             std::string(severity_name(k.severity)) +
                             "): " + std::string(k.meaning) + "\n";
    EXPECT_NE(page.find(line), page.npos) << line;
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
        fs::remove_all(options.output);
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
  EXPECT_EQ(codes_of(verify_checkpoint(verify)), std::set<std::string>{"not-quantized"});
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

TEST(Verify, WhatSingleLoadersBuildPlainIsForThemAlone) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  const std::string latent = "model.layers.0.self_attn.kv_b_proj";
  const std::string next = "model.layers.1.mlp.down_proj";  // the layer behind the last one
  for (const std::string& module : {latent, next}) {
    bed.only(module, {64, 64});
    bed.edit([](LoadedFolder& f) {
      f.config["num_hidden_layers"] = 1;
      f.config["num_nextn_predict_layers"] = 1;
    });
    for (const std::string loader : {"", "vllm", "sglang", "tensorrt-llm", "transformers"}) {
      bed.options.loader = loader;
      const VerifyReport report = verify_checkpoint(bed.options);
      const std::set<std::string> codes = codes_of(report);
      EXPECT_EQ(codes.contains("latent-attention"),
                module == latent && (loader == "sglang" || loader == "tensorrt-llm"))
          << loader << text_of(report);
      EXPECT_EQ(codes.contains("mtp-quantized"), module == next && loader == "sglang")
          << loader << text_of(report);
      EXPECT_EQ(codes.contains("mtp-dropped"), module == latent) << loader << text_of(report);
    }
    bed.edit([](LoadedFolder& f) { f.config.erase("num_hidden_layers"); });
    EXPECT_FALSE(codes_of(verify_checkpoint(bed.options)).contains("mtp-dropped"));
  }
}

/// What is said of one weight of these sizes, as the multiples that a loader takes and does not.
TEST(Verify, LimitsAreThoseOfEachLoader) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  const std::string dense = "model.layers.0.mlp.down_proj";
  const std::string expert = "model.layers.0.mlp.experts.0.down_proj";
  struct Case {
    const char* loader;
    std::string module;
    std::int64_t rows, columns;
    const char* limit = "";
  };
  const Case cases[] = {
      {"vllm", dense, 40, 48},
      {"vllm", expert, 40, 48},
      {"sglang", dense, 40, 48},
      {"sglang", expert, 40, 64},
      {"sglang", expert, 40, 192},
      {"sglang", expert, 40, 240, "columns-limit"},
      {"tensorrt-llm", dense, 40, 48},
      {"tensorrt-llm", expert, 40, 48},
      {"transformers", dense, 40, 48},
      {"llama.cpp", dense, 40, 64},
      {"llama.cpp", dense, 40, 96, "columns-limit"},
      {"llama.cpp", expert, 40, 64},
  };
  for (const Case& c : cases) {
    bed.only(c.module, {c.rows, c.columns});
    bed.options.loader = c.loader;
    std::string limits;
    for (const std::string& code : codes_of(verify_checkpoint(bed.options)))
      if (code.ends_with("-limit")) limits += code;
    EXPECT_EQ(limits, c.limit) << c.loader << ' ' << c.module << ' ' << c.rows << ' ' << c.columns;
  }
}

TEST(Verify, FormatsAreThoseThatEachLoaderReads) {
  const TempDir dir;
  write_tiny_llama(dir / "source");
  const std::map<std::string, std::set<std::string>> readers = {
      {"modelopt", {"vllm", "sglang", "tensorrt-llm", "llama.cpp"}},
      {"compressed-tensors", {"vllm", "sglang", "transformers", "llama.cpp"}},
      {"quark", {"vllm"}},
      {"comfyui", {}}};
  for (const auto& [format, expected] : readers) {
    auto options = quantize_options(dir / "source", dir / format);
    options.format = format == "quark" ? "modelopt" : format;
    quantize_checkpoint(options);
    if (format == "quark") {
      LoadedFolder model(options.output);
      for (auto& [file, tensors] : model.shards)
        for (TestTensor& t : tensors)
          if (t.spec.name.ends_with(".input_scale")) t.spec.name += "_2";
      model.quantization()["quant_method"] = "quark";
      model.hf_quant = nullptr;
      fs::remove_all(options.output);
      model.write(options.output);
    }
    for (const std::string_view loader : known_loaders()) {
      VerifyOptions verify;
      verify.path = options.output;
      verify.loader = loader;
      const VerifyReport report = verify_checkpoint(verify);
      EXPECT_EQ(report.format, format);
      const bool reads = expected.contains(std::string(loader));
      EXPECT_EQ(codes_of(report).contains("loader-format"), !reads) << format << ' ' << loader;
      if (reads) {
        EXPECT_EQ(codes_of(report), std::set<std::string>{"input-scale-default"})
            << text_of(report);
      }
    }
  }
}

TEST(Verify, RowsOfTheirOwnNormsAreNoTiles) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  bed.options.path = bed.output;
  bed.only("model.layers.0.mlp.down_proj", {256, 512}, structured(256, 512));
  EXPECT_EQ(codes_of(verify_checkpoint(bed.options)), std::set<std::string>{"input-scale-default"});
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

TEST(Verify, ExpressionsOfAHostileConfigurationEnd) {
  const TempDir dir;
  Bed bed{dir / "source", dir / "output", {}};
  write_tiny_llama(bed.source);
  quantize_checkpoint(quantize_options(bed.source, bed.output));
  bed.options.path = bed.output;
  const auto found_with = [&](const std::string& expression) {
    bed.edit([&](LoadedFolder& f) {
      f.quantization()["ignore"] = {expression, "lm_head"};
      f.hf_quant["quantization"]["exclude_modules"] = {expression, "lm_head"};
    });
    return text_of(verify_checkpoint(bed.options));
  };
  for (const char* expression : {"re:(?!x)([a-z_0-9.]+)+[!?]", "re:.*mlp(", "re:.*[z-a]"})
    EXPECT_THAT(found_with(expression),
                ::testing::AllOf(::testing::HasSubstr("bad-config: "),
                                 ::testing::HasSubstr("hf_quant_config.json: pattern: "),
                                 ::testing::HasSubstr(expression)));
  EXPECT_EQ(found_with("re:(?=.*vision)(?P<x>.*)").find("bad-config"), std::string::npos);
  EXPECT_EQ(found_with("re:([a-z_0-9.]+)+[!?]").find("bad-config"), std::string::npos);
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

}  // namespace nvfp4::checkpoint_verify_test
