#include <gtest/gtest.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/faults.h"
#include "checkpoint/findings.h"
#include "nvfp4/error.h"
#include "nvfp4/repair.h"
#include "nvfp4/verify.h"

/// Checkpoints as other writers make them, healthy, and broken in ways that ours are not.
namespace nvfp4 {
namespace {

using namespace faults;
using Json = nlohmann::ordered_json;

class VerifyOthers : public testing::Test {
 protected:
  VerifyOthers() { write_tiny_llama(bed_.source); }

  /// What is found, but for the note that nobody measured activations.
  std::set<std::string> codes_after(const std::function<void(LoadedFolder&)>& change,
                                    const std::string& format = "modelopt") {
    auto options = quantize_options(bed_.source, bed_.output);
    options.format = format;
    options.overwrite = true;
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

}  // namespace
}  // namespace nvfp4
