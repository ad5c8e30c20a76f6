#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

/// Checkpoints as other writers make them, healthy, and broken in ways that ours are not.
namespace nvfp4::verify_others_test {

using namespace faults;

class VerifyOthers : public testing::Test {
 protected:
  VerifyOthers() { write_tiny_llama(bed_.source); }

  /// What is found, but for the note that nobody measured activations.
  std::set<std::string> codes_after(const std::function<void(LoadedFolder&)>& change,
                                    const std::string& format = "modelopt") {
    auto options = quantize_options(bed_.source, bed_.output);
    options.format = format;
    std::filesystem::remove_all(options.output);
    quantize_checkpoint(options);
    bed_.edit(change);
    bed_.options.path = bed_.output;
    std::set<std::string> codes = codes_of(verify_checkpoint(bed_.options));
    codes.erase("input-scale-default");
    return codes;
  }

  TempDir dir_;
  Bed bed_{dir_ / "source", dir_ / "output", {}};
};

using Codes = std::set<std::string>;

/// TheHouseOfTheDude/Behemoth-R1-V2_ModelOpt-NVFP4.
TEST_F(VerifyOthers, ModelOptsConfigurationsAreRight) {
  EXPECT_EQ(codes_after([](LoadedFolder& f) {
              f.hf_quant = Json::parse(R"({"producer":{"name":"modelopt","version":"0.41.0"},
                "quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":null,"group_size":16,
                "exclude_modules":["lm_head"]}})");
              f.quantization() = Json::parse(R"({"config_groups":{"group_0":{
                "input_activations":{"dynamic":false,"num_bits":4,"type":"float","group_size":16},
                "weights":{"dynamic":false,"num_bits":4,"type":"float","group_size":16},
                "targets":["Linear"]}},"ignore":["lm_head"],"quant_algo":"NVFP4",
                "producer":{"name":"modelopt","version":"0.41.0"},"quant_method":"modelopt"})");
            }),
            Codes{});
}

/// auto-round's, which lists no exclusion where a group names what it takes; and a group that does
/// not.
TEST_F(VerifyOthers, CompressedTensorsGroupsNameWhatTheyTake) {
  const auto with_targets = [](Json targets) {
    return [targets = std::move(targets)](LoadedFolder& f) {
      f.quantization()["config_groups"]["group_0"]["targets"] = targets;
      f.quantization()["ignore"] = Json::array();
    };
  };
  EXPECT_EQ(codes_after(with_targets({"re:.*self_attn.*", "re:.*mlp.*"}), "compressed-tensors"),
            Codes{});
  EXPECT_EQ(codes_after(with_targets({"Linear"}), "compressed-tensors"), Codes{"kept-not-excluded"})
      << "lm_head";
}

TEST_F(VerifyOthers, QuantizedLayersMayBePatterns) {
  const auto with_layers = [](Json layers) {
    return [layers = std::move(layers)](LoadedFolder& f) {
      f.quantization()["quantized_layers"] = layers;
      f.hf_quant["quantization"]["quantized_layers"] = layers;
    };
  };
  const Json nvfp4 = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
  EXPECT_EQ(codes_after(with_layers({{"model.layers.*", nvfp4}})), Codes{});
  EXPECT_EQ(codes_after(with_layers({{"model.layers.0", nvfp4}, {"model.layers.1", nvfp4}})),
            Codes{});
  EXPECT_EQ(codes_after([&](LoadedFolder& f) {
              with_layers({{"model.layers.0", nvfp4}})(f);
              for (Json* q : {&f.quantization(), &f.hf_quant["quantization"]})
                (*q)["quant_algo"] = "MIXED_PRECISION";
              f.quantization().erase("config_groups");
            }),
            Codes{"not-in-quantized-layers"});
  RepairOptions repair;
  repair.input = bed_.output;
  repair.output = dir_ / "repaired";
  EXPECT_FALSE(repair_checkpoint(repair).after.broken());
}

/// Weights alone in four bits in one group, activations too in the other.
TEST_F(VerifyOthers, EachWeightIsJudgedByItsOwnGroup) {
  const auto without_inputs_of = [](LoadedFolder& f, const std::string& part) {
    for (auto& [file, tensors] : f.shards)
      std::erase_if(tensors, [&](const TestTensor& t) {
        return t.spec.name.find(part) != t.spec.name.npos &&
               t.spec.name.find(".input_") != t.spec.name.npos;
      });
  };
  for (const std::string part : {"self_attn", "mlp"}) {
    const auto groups = [&](LoadedFolder& f) {
      auto& g = f.quantization()["config_groups"];
      g["group_1"] = g["group_0"];
      g["group_1"]["targets"] = {"re:.*self_attn.*"};
      g["group_1"]["input_activations"] = nullptr;
      without_inputs_of(f, part);
    };
    const Codes wrong = {"missing-input-scale", "unexpected-input-scale"};
    EXPECT_EQ(codes_after(groups, "compressed-tensors"), part == "mlp" ? wrong : Codes{});
    RepairOptions repair;
    repair.input = bed_.output;
    repair.output = dir_ / "repaired";
    expect_error<UnsupportedError>([&] { repair_checkpoint(repair); }, {"_proj", "nvfp4a16"});
    const auto layers = [&](LoadedFolder& f) {
      Json each = Json::object();
      for (const char* layer : {"0", "1"})
        for (const char* module : {"self_attn", "mlp"})
          each[std::string("model.layers.") + layer + "." + module] = {
              {"quant_algo", std::string(module) == "mlp" ? "NVFP4" : "W4A16_NVFP4"}};
      for (Json* q : {&f.quantization(), &f.hf_quant["quantization"]}) {
        (*q)["quant_algo"] = "MIXED_PRECISION";
        (*q)["quantized_layers"] = each;
      }
      without_inputs_of(f, part);
    };
    EXPECT_EQ(codes_after(layers), part == "mlp" ? wrong : Codes{});
  }
}

TEST_F(VerifyOthers, PredictionLayersHaveSeveralNames) {
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    const auto with = [&](const std::string& name) {
      return codes_after([&](LoadedFolder& f) {
        f.config[key] = 1;
        f.config["num_hidden_layers"] = 2;
        if (!name.empty())
          f.shard_of("lm_head.weight").push_back(random_tensor(name + ".norm.weight", {64}));
      });
    };
    EXPECT_EQ(with(""), Codes{"mtp-dropped"});
    for (const char* name : {"model.layers.2", "mtp.0", "model.nextn.0"})
      EXPECT_EQ(with(name), Codes{}) << name;
  }
}

/// "≥ 1 where a multiplier is meant", for multipliers and divisors.
TEST_F(VerifyOthers, AGlobalScaleOfOneAndMoreIsInTheWrongSense) {
  const std::string down = "model.layers.0.mlp.down_proj";
  for (const std::string format : {"modelopt", "compressed-tensors"}) {
    const bool divides = format == "compressed-tensors";
    const std::string name = down + (divides ? ".weight_global_scale" : ".weight_scale_2");
    for (const float multiplier : {0.5f, 1.0f, 2.0f}) {
      const auto codes = codes_after(
          [&](LoadedFolder& f) { f.set_scalar(name, divides ? 1 / multiplier : multiplier); },
          format);
      EXPECT_EQ(codes, multiplier < 1 ? Codes{} : Codes{"global-scale-sense"})
          << format << ' ' << multiplier;
    }
  }
}

/// compressed-tensors writes 1 beside weights that are all zero, and so do we; weights without a
/// global scale of their own have it too.
TEST_F(VerifyOthers, AGlobalScaleOfOneIsRightOverZerosAndSmallBlocks) {
  const std::string down = "model.layers.0.mlp.down_proj";
  for (const std::string format : {"modelopt", "compressed-tensors"}) {
    const bool divides = format == "compressed-tensors";
    const std::string codes = down + (divides ? ".weight_packed" : ".weight");
    const std::string global = down + (divides ? ".weight_global_scale" : ".weight_scale_2");
    for (const std::uint8_t scale : {0x01, 0x20, 0x7E})  // 2^-9, 0.125, 448
      for (const bool zero : {false, true})
        EXPECT_EQ(codes_after(
                      [&](LoadedFolder& f) {
                        f.set_scalar(global, 1);
                        std::ranges::fill(f.at(down + ".weight_scale").bytes, std::byte{scale});
                        if (zero) std::ranges::fill(f.at(codes).bytes, std::byte{0x80});
                      },
                      format),
                  zero            ? Codes{}
                  : scale == 0x7E ? Codes{"global-scale-sense"}
                  : scale == 0x01 ? Codes{"scale-subnormal"}
                                  : Codes{})
            << format << ' ' << int{scale} << ' ' << zero;
  }
}

TEST_F(VerifyOthers, WeightsThatAreAllZeroAreHealthyAsWeWriteThem) {
  for (const std::string format : {"modelopt", "compressed-tensors"}) {
    std::filesystem::remove_all(dir_ / "zeros");
    write_model(dir_ / "zeros",
                {{{{"model.layers.0.mlp.down_proj.weight", safetensors::DType::bf16, {64, 64}},
                   std::vector<std::byte>(64 * 64 * 2)}}},
                kLlamaConfig);
    auto options = quantize_options(dir_ / "zeros", bed_.output);
    options.format = format;
    std::filesystem::remove_all(options.output);
    quantize_checkpoint(options);
    bed_.options.path = bed_.output;
    EXPECT_EQ(codes_of(verify_checkpoint(bed_.options)), Codes{"input-scale-default"});
  }
}

/// NVFP4 feed-forward, FP8 attention with a scale for each row.
class VerifyMixed : public VerifyOthers {
 protected:
  Codes codes_with(const std::function<void(LoadedFolder&)>& change) {
    return codes_after(
        [&](LoadedFolder& f) {
          auto& groups = f.quantization()["config_groups"];
          groups["group_1"] = {{"targets", {"re:.*self_attn.*"}},
                               {"format", "float-quantized"},
                               {"weights", {{"num_bits", 8}, {"type", "float"}}}};
          groups["group_0"]["targets"] = {"re:.*mlp.*"};
          f.quantization()["format"] = "mixed-precision";
          for (auto& [file, tensors] : f.shards) {
            std::vector<TestTensor> kept;
            for (TestTensor& t : tensors) {
              const std::size_t packed = t.spec.name.find(".weight_packed");
              if (t.spec.name.find("self_attn") == std::string::npos)
                kept.push_back(std::move(t));
              else if (packed != std::string::npos)
                for (TestTensor& part : fp8_weight(t.spec.name.substr(0, packed), 64, 64,
                                                   ".weight_scale", {64, 1}, 1, 64)
                                            .tensors)
                  kept.push_back(std::move(part));
            }
            tensors = std::move(kept);
          }
          change(f);
        },
        "compressed-tensors");
  }
  static constexpr const char* kScale = "model.layers.0.self_attn.q_proj.weight_scale";
};

TEST_F(VerifyMixed, ScalesOfFp8AreReadToo) {
  const Codes healthy;
  EXPECT_EQ(codes_with([](LoadedFolder&) {}), healthy);
  const auto with = [&](float scale) {
    Codes codes = codes_with([&](LoadedFolder& f) {
      const auto bytes = encode({scale}, safetensors::DType::f32);
      std::ranges::copy(bytes, f.at(kScale).bytes.begin() + 4 * 7);
    });
    return codes;
  };
  EXPECT_EQ(with(std::nanf("")), Codes{"scale-nan"});
  EXPECT_EQ(with(INFINITY), Codes{"scale-nan"});
  EXPECT_EQ(with(0), Codes{"scale-zero"});
  EXPECT_EQ(with(-1), Codes{"scale-negative"});
  EXPECT_EQ(codes_with([&](LoadedFolder& f) {
              std::ranges::fill(f.at(kScale).bytes, std::byte{0});
              std::ranges::fill(f.at("model.layers.0.self_attn.q_proj.weight").bytes,
                                std::byte{0x80});
            }),
            healthy)
      << "over zeros";
  EXPECT_EQ(codes_with([&](LoadedFolder& f) { f.remove(kScale); }), Codes{"missing-scale"});
}

TEST_F(VerifyMixed, EachWeightIsInAGroupOfItsForm) {
  const auto with_targets = [&](const char* group, Json targets) {
    Codes codes = codes_with([&](LoadedFolder& f) {
      f.quantization()["config_groups"][group]["targets"] = std::move(targets);
    });
    return codes;
  };
  EXPECT_EQ(with_targets("group_0", {"Linear"}), Codes{});
  EXPECT_EQ(with_targets("group_0", {"re:.*up_proj", "re:.*gate_proj"}),
            Codes{"not-in-quantized-layers"});
  EXPECT_EQ(with_targets("group_1", {"re:.*[qkv]_proj"}), Codes{"not-in-quantized-layers"});
  EXPECT_EQ(with_targets("group_1", {"re:.*self_attn.*", "re:.*mlp.up.*"}), Codes{});
  EXPECT_EQ(with_targets("group_0", {"re:.*"}), Codes{});
  EXPECT_EQ(codes_with([](LoadedFolder& f) {
              auto& groups = f.quantization()["config_groups"];
              std::swap(groups["group_0"]["targets"], groups["group_1"]["targets"]);
            }),
            Codes{"declared-format"});
  EXPECT_EQ(
      codes_with([](LoadedFolder& f) { f.quantization()["ignore"].push_back("re:.*q_proj"); }),
      Codes{"excluded-quantized"});
}

TEST_F(VerifyMixed, RepairRefusesWhatItCannotQuantizeAgain) {
  codes_with([](LoadedFolder& f) { f.set_scalar(kScale, std::nanf("")); });
  RepairOptions options;
  options.input = bed_.output;
  options.output = dir_ / "repaired";
  expect_error<UnsupportedError>([&] { repair_checkpoint(options); },
                                 {"scale-nan", "q_proj", "FP8"});
  options.source = bed_.source;  // all of the FP8 weights are far from it
  expect_error<UnsupportedError>([&] { repair_checkpoint(options); },
                                 {"cannot be repaired", "self_attn", "FP8"});
  EXPECT_FALSE(fs::exists(options.output));
}

TEST_F(VerifyMixed, WhatCannotStayFp8IsAnErrorUnlessDecodingIsAskedFor) {
  codes_with([](LoadedFolder&) {});
  ConvertOptions options;
  options.input = bed_.output;
  for (const bool dry_run : {true, false})
    for (const bool decode : {false, true})
      for (const std::string to : {"compressed-tensors", "comfyui"}) {
        options.to = to;
        options.output = dir_ / (to + (decode ? "-decoded" : ""));
        options.allow.decode = decode;
        options.dry_run = dry_run;
        const bool stays = to != "comfyui";
        if (!stays && !decode) {
          expect_error<UnsupportedError>([&] { convert_checkpoint(options); },
                                         {"model.layers.0.self_attn.k_proj.weight", "FP8",
                                          "comfyui cannot hold", "--allow decode"});
          EXPECT_FALSE(fs::exists(options.output));
          continue;
        }
        const auto warnings = convert_checkpoint(options).warnings;
        const auto about = std::ranges::find_if(warnings, [](const std::string& w) {
          return w.starts_with("8 quantized weights become BF16, comfyui") &&
                 w.ends_with("model.layers.0.self_attn.k_proj, ...");
        });
        EXPECT_EQ(about == warnings.end(), stays) << testing::PrintToString(warnings);
      }
}

TEST_F(VerifyOthers, ScalesOfTheCacheAreReadToo) {
  for (const auto& [value, code] :
       {std::pair(std::nanf(""), "scale-nan"), {0.0f, "scale-zero"}, {0.5f, ""}}) {
    const std::string name = "model.layers.0.self_attn.v_proj.v_scale";
    const Codes codes = codes_after([&](LoadedFolder& f) {
      f.shard_of(kQ + ".weight")
          .push_back(
              {{name, safetensors::DType::f32, {}}, encode({value}, safetensors::DType::f32)});
    });
    EXPECT_EQ(codes.contains("scale-nan"), code == std::string("scale-nan")) << value;
    EXPECT_EQ(codes.contains("scale-zero"), code == std::string("scale-zero")) << value;
  }
}

TEST_F(VerifyOthers, ExponentsOfMxfp4MayBeNaNOrFarTooLarge) {
  for (const int largest : {135, 136, 254, 255}) {
    PackedWeight w = mxfp4_matrix("layers.0.ffn.experts.0.w1", 32, 64, 120, 125);
    w.tensors[1].bytes[5] = static_cast<std::byte>(largest);
    w.tensors[0].bytes[5 * 16] = std::byte{0x07};  // 6
    std::filesystem::remove_all(bed_.output);
    write_model(bed_.output, {w.tensors}, kLlamaConfig);
    bed_.options.path = bed_.output;
    EXPECT_EQ(codes_of(verify_checkpoint(bed_.options)), largest == 255   ? Codes{"scale-nan"}
                                                         : largest >= 136 ? Codes{"scale-too-large"}
                                                                          : Codes{})
        << largest;
  }
}

}  // namespace nvfp4::verify_others_test
