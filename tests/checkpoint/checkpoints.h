#pragma once

#include "checkpoint/base/json.h"
#include "checkpoint/models.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/load_layers.h"
#include "nvfp4/checkpoint/options.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/verify.h"

/// The headers and helpers of nearly every test of checkpoints.
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

inline std::set<std::string> codes_of(const VerifyReport& report) {
  std::set<std::string> codes;
  for (const Finding& f : report.findings) codes.insert(f.code);
  return codes;
}

inline std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Finding& f : report.findings) text += f.code + ": " + f.text + "\n";
  return text;
}

inline ConvertOptions convert_options(const std::filesystem::path& input,
                                      const std::filesystem::path& output,
                                      const std::string& to = "", const OptionWords& words = {}) {
  ConvertOptions options;
  options.input = input;
  options.output = output;
  options.to = to;
  set_options(options, kConvertOptions, words);
  return options;
}

inline QuantizeReport convert(const std::filesystem::path& input,
                              const std::filesystem::path& output, const std::string& to,
                              bool force = false) {
  ConvertOptions options = convert_options(input, output, to);
  options.allow.broken_scales = force;
  return convert_checkpoint(options);
}

/// `to`: "quantize", or a form to convert to.
inline QuantizeReport quantize_or_convert(const std::filesystem::path& input,
                                          const std::filesystem::path& output,
                                          const std::string& to, bool force) {
  if (to != "quantize") return convert(input, output, to, force);
  QuantizeCheckpointOptions options = quantize_options(input, output);
  options.allow.broken_scales = force;
  return quantize_checkpoint(options);
}

inline void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const LoadedModel x(a), y(b);
  ASSERT_EQ(x.tensors.size(), y.tensors.size());
  for (const auto& [name, tensor] : x.tensors) {
    ASSERT_TRUE(y.has(name)) << name;
    EXPECT_EQ(tensor.dtype, y.at(name).dtype) << name;
    EXPECT_EQ(tensor.shape, y.at(name).shape) << name;
    EXPECT_EQ(tensor.bytes, y.at(name).bytes) << name;
  }
}

/// Returns the findings of verify, except notes, mixed groups and limits of loaders.
inline std::string findings_of(const std::filesystem::path& path) {
  VerifyOptions options;
  options.path = path;
  std::string text;
  for (const Finding& f : verify_checkpoint(options).findings)
    if (f.severity != Severity::note && f.code != "not-quantized")
      text += f.code + ": " + f.text + "\n";
  return text;
}

/// The tensors of a group in the output, held against quantize() of the whole input tensors with
/// one global scale.
inline void expect_quantized(const LoadedModel& in, const LoadedModel& out,
                             const std::vector<std::string>& group, Quantizer quantizer,
                             const GlobalScale& global, bool modelopt = true) {
  for (const std::string& name : group) {
    const QuantizedMatrix expected =
        quantize(in.matrix(name + ".weight"), {.quantizer = quantizer, .global = {&global, 1}});
    const QuantizedShape& shape = expected.shape();
    const auto& codes = out.at(name + (modelopt ? ".weight" : ".weight_packed"));
    EXPECT_EQ(codes.dtype, safetensors::DType::u8);
    EXPECT_EQ(codes.shape, (std::vector<std::int64_t>{shape.rows, shape.cols / 2})) << name;
    EXPECT_EQ(std::memcmp(codes.bytes.data(), expected.codes(), codes.bytes.size()), 0) << name;
    const auto& scales = out.at(name + ".weight_scale");
    EXPECT_EQ(scales.dtype, safetensors::DType::f8_e4m3);
    EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{shape.rows, shape.cols / 16})) << name;
    EXPECT_EQ(std::memcmp(scales.bytes.data(), expected.scales(), scales.bytes.size()), 0) << name;
    if (modelopt) {
      EXPECT_EQ(out.scalar(name + ".weight_scale_2"), global.multiplier) << name;
      EXPECT_TRUE(out.at(name + ".weight_scale_2").shape.empty());
    } else {
      EXPECT_EQ(out.scalar(name + ".weight_global_scale"), global.divisor) << name;
      EXPECT_EQ(out.at(name + ".weight_global_scale").shape, std::vector<std::int64_t>{1});
    }
  }
}

inline float amax_of(const LoadedModel& in, const std::vector<std::string>& group) {
  float largest = 0;
  for (const std::string& name : group)
    largest = std::max(largest, amax(in.matrix(name + ".weight")));
  return largest;
}

/// The same, with the global scale of the group's amax.
inline void expect_quantized(const LoadedModel& in, const LoadedModel& out,
                             const std::vector<std::string>& group, Quantizer quantizer,
                             bool modelopt = true) {
  expect_quantized(in, out, group, quantizer, GlobalScale::from_amax(amax_of(in, group), quantizer),
                   modelopt);
}

/// A test with a folder of its own.
struct FolderTest : testing::Test {
  const TempDir dir;
};

/// A test with a tiny llama in a folder "in" of its own folder.
struct LlamaTest : FolderTest {
  LlamaTest() { write_tiny_llama(dir / "in"); }
};

inline RepairOptions repair_options(const std::filesystem::path& input,
                                    const std::filesystem::path& output,
                                    std::optional<std::filesystem::path> source = {},
                                    const OptionWords& words = {}) {
  RepairOptions options;
  options.input = input;
  options.output = output;
  options.source = std::move(source);
  set_options(options, kRepairOptions, words);
  return options;
}

inline VerifyOptions verify_options(const std::filesystem::path& path,
                                    std::optional<std::filesystem::path> source = {},
                                    const std::string& loader = "", const OptionWords& words = {}) {
  VerifyOptions options;
  options.path = path;
  options.source = std::move(source);
  options.loader = loader;
  set_options(options, kVerifyOptions, words);
  return options;
}

/// Reports whether a text is in any of the lines.
inline bool says(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::any_of(lines, [&](const std::string& l) { return l.find(text) != l.npos; });
}

}  // namespace nvfp4
