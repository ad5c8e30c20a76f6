#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/loaded_folder.h"
#include "nvfp4/checkpoint/verify.h"

/// A fault of each kind that `nvfp4 verify` knows, planted in a healthy model.
namespace nvfp4::faults {

namespace fs = std::filesystem;

inline const std::string kQ = "model.layers.0.self_attn.q_proj";
inline const std::string kUp = "model.layers.1.mlp.up_proj";

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
  void edit_source(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(source);
    change(folder);
    fs::remove_all(source);
    folder.write(source);
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
            std::vector<float> values = {}, const std::string& format = "modelopt") const {
    TestTensor tensor = random_tensor(module + ".weight", std::move(shape));
    if (!values.empty()) tensor.bytes = encode(values, safetensors::DType::bf16);
    fs::remove_all(source);
    fs::remove_all(output);
    write_model(source, {{std::move(tensor)}}, kLlamaConfig);
    auto options = quantize_options(source, output);
    options.include = {module + ".weight"};
    options.format = format;
    quantize_checkpoint(options);
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

inline Plant edit(std::function<void(LoadedFolder&)> change) {
  return [change = std::move(change)](Bed& bed) { bed.edit(change); };
}
inline Plant edit_index(std::function<void(safetensors::Index&)> change) {
  return [change = std::move(change)](Bed& bed) { bed.edit_index(change); };
}
inline Plant scale_byte(std::uint8_t value) {
  return edit([value](LoadedFolder& f) { f.at(kQ + ".weight_scale").bytes[3] = std::byte{value}; });
}
inline Plant scalar(const std::string& name, std::function<float(float)> change) {
  return edit([=](LoadedFolder& f) { f.set_scalar(name, change(f.scalar(name))); });
}

/// Row-major scales put into tiles, as a whole tensor of `shape`.
inline void tile(TestTensor& scales, std::vector<std::int64_t> shape) {
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
inline std::vector<float> structured(std::int64_t rows, std::int64_t cols) {
  std::vector<float> x = random_values(rows * cols, "structured", 0.01f);
  const std::vector<float> row = random_values(rows, "row", 0.7f);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    x[static_cast<std::size_t>(i)] *= std::exp(row[static_cast<std::size_t>(i / cols)]);
  return x;
}

inline TestTensor fp8_tensor(const std::string& name) {
  return {{name, safetensors::DType::f8_e4m3, {64, 64}}, std::vector<std::byte>(64 * 64)};
}

/// A matrix of the same code everywhere, with one scale.
inline void add_fp8(LoadedFolder& f, std::byte code, float scale) {
  TestTensor codes = fp8_tensor("extra.weight");
  std::ranges::fill(codes.bytes, code);
  auto& shard = f.shard_of("lm_head.weight");
  shard.push_back(std::move(codes));
  shard.push_back({{"extra.weight_scale", safetensors::DType::f32, {}},
                   encode({scale}, safetensors::DType::f32)});
}

inline void declare_cache(LoadedFolder& f) {
  f.hf_quant["quantization"]["kv_cache_quant_algo"] = "FP8";
}
/// `kind`: "k" or "v", of the attention that `module` is in.
inline void add_cache_scale(LoadedFolder& f, const std::string& module, const std::string& kind,
                            float scale) {
  const std::string name =
      module.substr(0, module.rfind('.')) + fmt::format(".{0}_proj.{0}_scale", kind);
  f.shard_of(module + ".weight")
      .push_back({{name, safetensors::DType::f32, {}}, encode({scale}, safetensors::DType::f32)});
}

inline const std::map<std::string, Plant>& plants() {
  static const std::map<std::string, Plant> all = {
      {"interrupted", [](Bed& b) { write_text(b.output / "nvfp4.partial.json", "{}"); }},
      {"unreadable-file",
       [](Bed& b) { fs::resize_file(b.output / "model-00001-of-00003.safetensors", 100); }},
      {"missing-shard",
       [](Bed& b) {
         fs::remove(b.output / "model.safetensors.index.json");
         fs::remove(b.output / "model-00002-of-00003.safetensors");
       }},
      {"changed-file",
       [](Bed& b) {
         std::string text = read_text(b.output / "config.json");
         write_text(b.output / "config.json", text + " ");
         b.options.full = true;
       }},
      {"missing-layers", edit([](LoadedFolder& f) { f.config["num_hidden_layers"] = 3; })},
      {"missing-linear", edit([](LoadedFolder& f) { f.remove_module(kUp); })},
      {"missing-expert",
       [](Bed& b) {
         b.experts();
         b.edit([](LoadedFolder& f) { f.remove_module("model.layers.0.mlp.experts.0"); });
       }},
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
      {"not-quantized",
       [](Bed& b) {
         fs::remove_all(b.output);
         LoadedFolder(b.source).write(b.output);
       }},
      {"missing-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight_scale"); })},
      {"missing-global-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight_scale_2"); })},
      {"orphan-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".weight"); })},
      {"unknown-form", edit([](LoadedFolder& f) {
         f.shard_of(kQ + ".weight").push_back(random_tensor(kQ + ".pre_quant_scale", {64}));
       })},
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
      {"scale-too-large", edit([](LoadedFolder& f) { add_fp8(f, std::byte{0x38}, 2688); })},
      {"code-nan", edit([](LoadedFolder& f) { add_fp8(f, std::byte{0xFF}, 1e-3f); })},
      {"scale-subnormal", edit([](LoadedFolder& f) {
         for (std::byte& s : f.at(kQ + ".weight_scale").bytes) s = std::byte{5};
       })},
      {"global-scale-invalid", scalar(kQ + ".weight_scale_2", [](float) { return std::nanf(""); })},
      {"global-scale-sense", scalar(kQ + ".weight_scale_2", [](float x) { return 1 / x; })},
      {"global-scale-tiny", scalar("model.layers.0.mlp.down_proj.weight_scale_2", [](float) { return 1e-30f; })},
      {"missing-input-scale", edit([](LoadedFolder& f) { f.remove(kQ + ".input_scale"); })},
      {"unexpected-input-scale", edit([](LoadedFolder& f) {
         f.quantization()["quant_algo"] = "W4A16_NVFP4";
         f.hf_quant["quantization"]["quant_algo"] = "W4A16_NVFP4";
       })},
      {"input-scale-invalid", scalar(kQ + ".input_scale", [](float) { return 0.0f; })},
      {"input-scale-sense", scalar(kQ + ".input_scale", [](float) { return 300.0f; })},
      {"input-scale-default", [](Bed&) {}},
      {"fused-globals", scalar(kQ + ".weight_scale_2", [](float x) { return 2 * x; })},
      {"fused-globals-far", scalar(kQ + ".weight_scale_2", [](float x) { return x / 1e6f; })},
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
      {"cache-scale-missing", edit([](LoadedFolder& f) { declare_cache(f); })},
      {"cache-scale-partly", edit([](LoadedFolder& f) {
         declare_cache(f);
         add_cache_scale(f, kQ, "k", 0.5f);
       })},
      {"cache-scale-negative", edit([](LoadedFolder& f) { add_cache_scale(f, kQ, "v", -1.0f); })},
      {"cache-scale-undeclared", edit([](LoadedFolder& f) { add_cache_scale(f, kQ, "k", 0.5f); })},
      {"loader-format", [](Bed& b) { b.options.loader = "transformers"; }},
      {"columns-limit",
       [](Bed& b) {
         b.only("model.layers.0.mlp.down_proj", {64, 96});
         b.options.loader = "llama.cpp";
       }},
      {"single-experts",
       [](Bed& b) {
         b.experts();
         b.edit([](LoadedFolder& f) { f.config["model_type"] = "gpt_oss"; });
         b.options.loader = "vllm";
       }},
      {"init-needs-weight",
       [](Bed& b) {
         b.only("backbone.layers.0.mixer.out_proj", {64, 64}, {}, "compressed-tensors");
         b.edit([](LoadedFolder& f) { f.config["model_type"] = "mamba2"; });
         b.options.loader = "transformers";
       }},
      {"split-loses-global-scale",
       [](Bed& b) {
         b.only("new.encoder.layer.0.attention.qkv_proj", {192, 64}, {}, "compressed-tensors");
         b.edit([](LoadedFolder& f) { f.config["model_type"] = "gte"; });
         b.options.loader = "transformers";
       }},
      {"kept-weight-lost",
       [](Bed& b) {
         b.only("model.layers.0.linear_attn.o_proj", {64, 64}, {}, "compressed-tensors");
         const auto kept = random_tensor("model.layers.0.linear_attn.q_conv1d.weight", {64, 1, 4});
         b.edit_source([&](LoadedFolder& f) { f.shards.begin()->second.push_back(kept); });
         b.edit([&](LoadedFolder& f) {
           f.shards.begin()->second.push_back(kept);
           f.config["model_type"] = "olmo_hybrid";
         });
         b.options.loader = "transformers";
       }},
      {"names-differ",
       [](Bed& b) {
         b.only("model.layers.0.mlp.up_proj", {64, 64}, {}, "compressed-tensors");
         const auto tower = random_tensor("visual.proj.weight", {64, 64});
         b.edit_source([&](LoadedFolder& f) { f.shards.begin()->second.push_back(tower); });
         b.edit([&](LoadedFolder& f) {
           f.shards.begin()->second.push_back(tower);
           f.config["model_type"] = "qwen2_5_vl";
           f.quantization()["ignore"] = {"visual.proj", "lm_head"};
         });
         b.options.loader = "transformers";
       }},
      {"vocabulary-quantized",
       [](Bed& b) {
         b.only("lm_head", {96, 64}, {}, "compressed-tensors");
         b.edit([](LoadedFolder& f) {
           f.config["vocab_size"] = 96;
           f.config["tie_word_embeddings"] = true;
         });
         b.options.loader = "transformers";
       }},
      {"experts-lose-global-scale",
       [](Bed& b) {
         b.experts();
         b.options.loader = "transformers";
       }},
      {"latent-attention",
       [](Bed& b) {
         b.only("model.layers.0.self_attn.kv_b_proj", {64, 64});
         b.options.loader = "sglang";
       }},
      {"mtp-quantized",
       [](Bed& b) {
         b.only("mtp.layers.0.mlp.down_proj", {64, 64});
         b.options.loader = "sglang";
       }},
      {"mixed-groups",
       [](Bed& b) {
         b.edit([](LoadedFolder& f) { add_fp8(f, std::byte{0}, 1); });
         b.options.loader = "llama.cpp";
       }},
      {"not-compared",
       [](Bed& b) {
         b.compare();
         fs::remove(b.output / "model-00002-of-00003.safetensors");
       }},
      {"source-missing",
       [](Bed& b) {
         b.compare();
         b.edit([](LoadedFolder& f) { f.remove("lm_head.weight"); });
       }},
      {"source-derived",
       [](Bed& b) {
         b.compare();
         b.edit_source([](LoadedFolder& f) {
           f.shard_of("lm_head.weight").push_back(random_tensor("model.rotary_emb.inv_freq", {8}));
         });
       }},
      {"other-source",
       [](Bed& b) {
         b.compare();
         b.edit_source([](LoadedFolder& f) {
           for (auto& [file, tensors] : f.shards)
             for (TestTensor& t : tensors)
               t.bytes = random_tensor("another " + t.spec.name, t.spec.shape).bytes;
         });
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

}  // namespace nvfp4::faults
