#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/tiny_model.h"

/// A model folder in memory: read, changed tensor by tensor, written again.
namespace nvfp4 {

struct LoadedFolder {
  std::map<std::string, std::vector<TestTensor>> shards;
  Json config, hf_quant;  ///< null if there is none

  explicit LoadedFolder(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = safetensors::File::open(entry.path());
      auto& tensors = shards[entry.path().filename().string()];
      for (const auto& t : file.tensors()) {
        tensors.push_back({{t.name, t.dtype, t.shape}, std::vector<std::byte>(t.bytes)});
        file.read(t, 0, tensors.back().bytes);
      }
    }
    const auto json = [&](const char* name) {
      const std::filesystem::path path = folder / name;
      return std::filesystem::exists(path) ? Json::parse(read_text(path)) : Json();
    };
    config = json("config.json");
    hf_quant = json("hf_quant_config.json");
  }

  TestTensor& at(const std::string& name) {
    for (auto& [file, tensors] : shards)
      for (TestTensor& t : tensors)
        if (t.spec.name == name) return t;
    throw std::runtime_error("no tensor " + name);
  }
  std::vector<TestTensor>& shard_of(const std::string& name) {
    for (auto& [file, tensors] : shards)
      for (const TestTensor& t : tensors)
        if (t.spec.name == name) return tensors;
    throw std::runtime_error("no tensor " + name);
  }
  void remove(const std::string& name) {
    std::erase_if(shard_of(name), [&](const TestTensor& t) { return t.spec.name == name; });
  }
  /// Its weight with all scales.
  void remove_module(const std::string& name) {
    for (auto& [file, tensors] : shards)
      std::erase_if(tensors,
                    [&](const TestTensor& t) { return t.spec.name.starts_with(name + "."); });
  }
  float scalar(const std::string& name) {
    float x;
    std::memcpy(&x, at(name).bytes.data(), sizeof x);
    return x;
  }
  void set_scalar(const std::string& name, float x) {
    std::memcpy(at(name).bytes.data(), &x, sizeof x);
  }
  Json& quantization() { return config["quantization_config"]; }

  /// Shards, an index that fits them if there are several, and the configs that are not null.
  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    safetensors::Index index;
    for (const auto& [file, tensors] : shards) {
      write_shard(folder / file, tensors);
      for (const TestTensor& t : tensors) {
        index.weight_map[t.spec.name] = file;
        index.total_size += t.bytes.size();
      }
    }
    if (shards.size() > 1)
      safetensors::write_file_atomically(folder / "model.safetensors.index.json",
                                         safetensors::index_json(index));
    if (!config.is_null()) write_text(folder / "config.json", config.dump(2));
    if (!hf_quant.is_null()) write_text(folder / "hf_quant_config.json", hf_quant.dump(2));
  }
};

}  // namespace nvfp4
