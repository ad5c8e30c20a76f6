#pragma once

#include "checkpoint/models.h"
#include "testing.h"

/// Files of statistics, as `nvfp4 calibrate` writes them.
namespace nvfp4 {

struct TestStatistics {
  std::vector<float> diagonal;
  float count = 100, amax = 0;
  std::vector<float> triangle = {};           ///< empty: none
  std::vector<float> sensitivity = {};        ///< one number; empty: none
  std::vector<float> input_sensitivity = {};  ///< a sum of roots, a number of tokens; empty: none
};

inline TestTensor floats(const std::string& name, const std::vector<float>& values) {
  return {{name, safetensors::DType::f32, {static_cast<std::int64_t>(values.size())}},
          encode(values, safetensors::DType::f32)};
}

inline void write_statistics(const std::filesystem::path& path,
                             const std::map<std::string, TestStatistics>& modules,
                             safetensors::Metadata metadata = {{"nvfp4_statistics", "1"}}) {
  std::vector<TestTensor> tensors;
  for (const auto& [module, s] : modules) {
    tensors.push_back(floats(module + ".diag", s.diagonal));
    tensors.push_back(floats(module + ".count", {s.count}));
    tensors.push_back(floats(module + ".amax", {s.amax}));
    if (!s.sensitivity.empty()) tensors.push_back(floats(module + ".sensitivity", s.sensitivity));
    if (!s.input_sensitivity.empty())
      tensors.push_back(floats(module + ".input_sensitivity", s.input_sensitivity));
    if (!s.triangle.empty()) tensors.push_back(floats(module + ".gram", s.triangle));
  }
  write_shard(path, tensors, metadata);
}

/// Returns statistics of every linear layer of write_tiny_llama(): positive, with different
/// channels.
inline std::map<std::string, TestStatistics> llama_statistics() {
  std::map<std::string, TestStatistics> all;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."})
    for (const char* module :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::string name = module;
      const std::string input = name.ends_with("k_proj") || name.ends_with("v_proj")
                                    ? "self_attn.q_proj"
                                : name.ends_with("up_proj") ? "mlp.gate_proj"
                                                            : name;
      TestStatistics& s = all[layer + name];
      s.diagonal = random_values(name.ends_with("down_proj") ? 128 : 64, layer + input, 3.0f);
      for (float& x : s.diagonal) x = x * x;
    }
  return all;
}

/// XᵀX of correlated inputs, seeded by `name`.
inline TestStatistics gram_statistics(const std::string& name, std::size_t depth,
                                      std::size_t tokens) {
  TestStatistics s;
  std::vector<float> x = random_values(static_cast<std::int64_t>(depth * tokens), name, 1.0f);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t k = 1; k < depth; ++k) x[t * depth + k] += 0.7f * x[t * depth + k - 1];
  const auto sum = [&](std::size_t i, std::size_t j) {
    float total = 0;
    for (std::size_t t = 0; t < tokens; ++t) total += x[t * depth + i] * x[t * depth + j];
    return total;
  };
  s.count = static_cast<float>(tokens);
  for (std::size_t i = 0; i < depth; ++i) {
    s.diagonal.push_back(sum(i, i));
    for (std::size_t j = i; j < depth; ++j) s.triangle.push_back(sum(i, j));
  }
  return s;
}

/// Gram matrices of every linear layer of write_tiny_llama().
inline void write_llama_grams(const std::filesystem::path& path) {
  std::map<std::string, TestStatistics> all = llama_statistics();
  for (auto& [module, s] : all) s = gram_statistics(module, s.diagonal.size(), 200);
  write_statistics(path, all);
}

}  // namespace nvfp4
