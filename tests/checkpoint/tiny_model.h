#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/temp_dir.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/safetensors.h"

/// Small models on disk, and a look at what became of them.
namespace nvfp4 {

struct TestTensor {
  safetensors::TensorSpec spec;
  std::vector<std::byte> bytes;
};

inline std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

inline std::vector<std::byte> encode(const std::vector<float>& values, safetensors::DType dtype) {
  std::vector<std::byte> bytes;
  for (const float v : values) {
    const std::uint32_t f = float_bits(v);
    const std::uint16_t h =
        dtype == safetensors::DType::bf16 ? BF16::from_float(v).bits : FP16::from_float(v).bits;
    const auto* p = dtype == safetensors::DType::f32 ? reinterpret_cast<const std::byte*>(&f)
                                                     : reinterpret_cast<const std::byte*>(&h);
    bytes.insert(bytes.end(), p, p + safetensors::dtype_bits(dtype) / 8);
  }
  return bytes;
}

inline std::vector<float> random_values(std::int64_t n, const std::string& seed, float sigma) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(seed)));
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

/// Normal values; each tensor has its own seed and its own sigma.
inline TestTensor random_tensor(const std::string& name, std::vector<std::int64_t> shape,
                                safetensors::DType dtype = safetensors::DType::bf16) {
  const float sigma = 0.01f * static_cast<float>(1 + std::hash<std::string>{}(name) % 7);
  std::vector<float> values = random_values(element_count(shape), name, sigma);
  return {{name, dtype, std::move(shape)}, encode(values, dtype)};
}

inline void write_shard(const std::filesystem::path& path, const std::vector<TestTensor>& tensors,
                        const safetensors::Metadata& metadata = {{"format", "pt"}}) {
  std::vector<safetensors::TensorSpec> specs;
  for (const TestTensor& t : tensors) specs.push_back(t.spec);
  safetensors::Writer writer(path, specs, metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, tensors[i].bytes);
  writer.commit();
}

/// Shards and their index, and config.json.
inline void write_model(const std::filesystem::path& folder,
                        const std::vector<std::vector<TestTensor>>& shards,
                        const std::string& config) {
  std::filesystem::create_directories(folder);
  safetensors::Index index;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : "model-0000" + std::to_string(s + 1) + "-of-0000" +
                                       std::to_string(shards.size()) + ".safetensors";
    write_shard(folder / name, shards[s]);
    for (const TestTensor& t : shards[s]) {
      index.weight_map[t.spec.name] = name;
      index.total_size += t.bytes.size();
    }
  }
  if (shards.size() > 1)
    safetensors::write_file_atomically(folder / "model.safetensors.index.json",
                                       safetensors::index_json(index));
  write_text(folder / "config.json", config);
}

inline const char* kLlamaConfig =
    "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"hidden_size\": 64,\n"
    "  \"model_type\": \"llama\",\n  \"rms_norm_eps\": 1e-05\n}\n";

/// Two layers in three shards; q, k and v of layer 1 lie in different ones.
inline void write_tiny_llama(const std::filesystem::path& folder) {
  std::vector<std::vector<TestTensor>> shards(3);
  shards[0].push_back(random_tensor("model.embed_tokens.weight", {96, 64}));
  for (const int layer : {0, 1}) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](int shard, const std::string& name, std::vector<std::int64_t> shape) {
      shards[static_cast<std::size_t>(shard)].push_back(random_tensor(p + name, std::move(shape)));
    };
    add(layer, "self_attn.q_proj.weight", {64, 64});
    add(2 * layer, "self_attn.k_proj.weight", {32, 64});
    add(layer, "self_attn.v_proj.weight", {32, 64});
    add(layer, "self_attn.o_proj.weight", {64, 64});
    add(layer, "mlp.gate_proj.weight", {128, 64});
    add(2 * layer, "mlp.up_proj.weight", {128, 64});
    add(layer, "mlp.down_proj.weight", {64, 128});
    add(layer, "input_layernorm.weight", {64});
    add(layer, "post_attention_layernorm.weight", {64});
  }
  shards[2].push_back(random_tensor("model.norm.weight", {64}));
  shards[2].push_back(random_tensor("lm_head.weight", {96, 64}));
  write_model(folder, shards, kLlamaConfig);
  write_text(folder / "tokenizer.json", "{\"version\": \"1.0\"}");
  write_text(folder / "modeling_llama.py", "import torch\n");
  std::filesystem::create_directories(folder / "assets");
  write_text(folder / "assets" / "LICENSE", "text\n");
}

/// Every tensor of a folder, by name.
struct LoadedModel {
  struct Tensor {
    safetensors::DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    std::uint64_t begin = 0;
  };
  std::map<std::string, Tensor> tensors;

  explicit LoadedModel(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = safetensors::File::open(entry.path());
      for (const auto& t : file.tensors()) {
        Tensor& tensor = tensors[t.name];
        tensor = {t.dtype, t.shape, std::vector<std::byte>(t.bytes), t.begin};
        file.read(t, 0, tensor.bytes);
      }
    }
  }
  const Tensor& at(const std::string& name) const {
    const auto it = tensors.find(name);
    if (it == tensors.end()) throw std::runtime_error("no tensor " + name);
    return it->second;
  }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }
  float scalar(const std::string& name) const {
    float x;
    std::memcpy(&x, at(name).bytes.data(), sizeof x);
    return x;
  }
  /// A tensor of the input as a matrix.
  MatrixView matrix(const std::string& name) const {
    const Tensor& t = at(name);
    const DType dtype = t.dtype == safetensors::DType::f32    ? DType::f32
                        : t.dtype == safetensors::DType::bf16 ? DType::bf16
                                                              : DType::f16;
    return {t.bytes.data(), dtype, t.shape.at(0), t.shape.at(1)};
  }
};

/// Relative path -> content of every file below the folder.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = read_text(entry.path());
  return files;
}

inline QuantizeCheckpointOptions quantize_options(const std::filesystem::path& input,
                                                  const std::filesystem::path& output) {
  QuantizeCheckpointOptions options;
  options.input = input;
  options.output = output;
  return options;
}

}  // namespace nvfp4
