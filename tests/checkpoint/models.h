#pragma once

#include "checkpoint/base/option_values.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/format.h"
#include "nvfp4/quantize.h"
#include "testing.h"

/// Small models on disk: their tensors, in every form, right or wrong.
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

/// A word of a command line.
struct OptionWord : std::string {
  template <class T>
  OptionWord(const T& value) : std::string(text_of(value)) {}  // NOLINT: implicit

 private:
  static std::string text_of(const std::filesystem::path& path) { return path.string(); }
  static std::string text_of(Scheme scheme) { return std::string(scheme_name(scheme)); }
  template <class T>
    requires std::is_arithmetic_v<T>
  static std::string text_of(T number) {
    return fmt::format("{}", number);
  }
};
using OptionWords = std::vector<OptionWord>;

/// Sets the options that the words give as a command line does: "--ignore", "a", "b", "--resume".
template <class Options, std::size_t N>
void set_options(Options& options, const OptionRow<Options> (&rows)[N], const OptionWords& words) {
  for (std::size_t at = 0; at < words.size();) {
    std::vector<std::string> values;
    const std::string& name = words[at++];
    for (; at < words.size() && !words[at].starts_with("--"); ++at) values.push_back(words[at]);
    const auto set = [&](const auto& table, auto& to) {
      for (const auto& row : table)
        if (std::ranges::count(options::split(row.names), name) > 0)
          return options::set(row, to, values), true;
      return false;
    };
    bool known = set(rows, options);
    if constexpr (std::is_base_of_v<RunOptions, Options>)
      known = known || set(kRunOptions, static_cast<RunOptions&>(options));
    if (!known) throw std::runtime_error("no option " + name);
  }
}

inline QuantizeCheckpointOptions quantize_options(const std::filesystem::path& input,
                                                  const std::filesystem::path& output,
                                                  const OptionWords& words = {}) {
  QuantizeCheckpointOptions options;
  options.input = input;
  options.output = output;
  set_options(options, kQuantizeOptions, words);
  return options;
}
inline QuantizeReport quantize_checkpoint(const std::filesystem::path& input,
                                          const std::filesystem::path& output,
                                          const OptionWords& words = {}) {
  return quantize_checkpoint(quantize_options(input, output, words));
}
inline SampleOptions sample_options(const std::filesystem::path& output, const OptionWords& words) {
  SampleOptions options;
  options.output = output;
  set_options(options, kSampleOptions, words);
  return options;
}

template <class T>
TestTensor stored(const std::string& name, safetensors::DType dtype,
                  std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{name, dtype, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

inline TestTensor stored_f32(const std::string& name, std::vector<std::int64_t> shape,
                             const std::vector<float>& values) {
  return stored(name, safetensors::DType::f32, std::move(shape), values);
}

/// The tensors of one ModelOpt layer. Codes and scales are row-major.
inline std::vector<TestTensor> modelopt_layer(const std::string& module, std::int64_t rows,
                                              std::int64_t cols,
                                              const std::vector<std::uint8_t>& codes,
                                              const std::vector<std::uint8_t>& scales,
                                              float global) {
  using enum safetensors::DType;
  return {stored(module + ".weight", u8, {rows, cols / 2}, codes),
          stored(module + ".weight_scale", f8_e4m3, {rows, cols / 16}, scales),
          stored_f32(module + ".weight_scale_2", {}, {global})};
}

inline std::vector<TestTensor> compressed_tensors_layer(const std::string& module,
                                                        std::int64_t rows, std::int64_t cols,
                                                        const std::vector<std::uint8_t>& codes,
                                                        const std::vector<std::uint8_t>& scales,
                                                        float divisor) {
  using enum safetensors::DType;
  return {stored(module + ".weight_packed", u8, {rows, cols / 2}, codes),
          stored(module + ".weight_scale", f8_e4m3, {rows, cols / 16}, scales),
          stored_f32(module + ".weight_global_scale", {1}, {divisor})};
}

/// A weight as FP8 and MXFP4 checkpoints store it, and its values.
inline std::vector<std::byte> random_bytes(std::int64_t n, const std::string& seed, int low,
                                           int high) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(seed)));
  std::uniform_int_distribution<int> value(low, high);
  std::vector<std::byte> bytes(static_cast<std::size_t>(n));
  for (std::byte& b : bytes) b = static_cast<std::byte>(value(random));
  return bytes;
}

struct PackedWeight {
  std::vector<TestTensor> tensors;
  std::vector<float> values;  ///< row-major
};

/// E4M3 with one FP32 scale for each block_rows x block_cols, in a tensor of `scale_shape`.
inline PackedWeight fp8_weight(const std::string& name, std::int64_t rows, std::int64_t cols,
                               const std::string& scale_name, std::vector<std::int64_t> scale_shape,
                               std::int64_t block_rows, std::int64_t block_cols) {
  PackedWeight w;
  std::vector<std::byte> codes = random_bytes(rows * cols, name, 0, 255);
  for (std::byte& c : codes)
    if ((c & std::byte{0x7F}) == std::byte{0x7F}) c ^= std::byte{1};  // NaN
  std::vector<float> scales = random_values(element_count(scale_shape), name + "s", 0.01f);
  for (float& s : scales) s = std::fabs(s) / 448 + 1e-6f;
  const std::int64_t scale_cols = (cols + block_cols - 1) / block_cols;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      w.values.push_back(
          E4M3{std::to_integer<std::uint8_t>(codes[static_cast<std::size_t>(r * cols + c)])}
              .to_float() *
          scales[static_cast<std::size_t>(r / block_rows * scale_cols + c / block_cols)]);
  w.tensors.push_back({{name + ".weight", safetensors::DType::f8_e4m3, {rows, cols}}, codes});
  w.tensors.push_back({{name + scale_name, safetensors::DType::f32, std::move(scale_shape)},
                       encode(scales, safetensors::DType::f32)});
  return w;
}

inline PackedWeight fp8_blocks(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return fp8_weight(name, rows, cols, ".weight_scale_inv", {(rows + 127) / 128, (cols + 127) / 128},
                    128, 128);
}

/// Random codes, exponents in [low, high] of E8M0.
inline PackedWeight mxfp4_weight(const std::string& codes_name, const std::string& scales_name,
                                 std::vector<std::int64_t> code_shape,
                                 std::vector<std::int64_t> scale_shape, int low, int high) {
  using enum safetensors::DType;
  PackedWeight w;
  const auto codes = random_bytes(element_count(code_shape), codes_name, 0, 255);
  const auto exponents = random_bytes(element_count(scale_shape), scales_name, low, high);
  for (std::size_t i = 0; i < codes.size() * 2; ++i) {
    const auto pair = std::to_integer<unsigned>(codes[i / 2]);
    const E2M1 code{static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4)};
    w.values.push_back(std::ldexp(code.to_float(), std::to_integer<int>(exponents[i / 32]) - 127));
  }
  w.tensors.push_back({{codes_name, u8, std::move(code_shape)}, codes});
  w.tensors.push_back({{scales_name, u8, std::move(scale_shape)}, exponents});
  return w;
}

/// Returns a matrix in the layout of DeepSeek-V4.
inline PackedWeight mxfp4_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 int low, int high) {
  PackedWeight w = mxfp4_weight(name + ".weight", name + ".scale", {rows, cols / 2},
                                {rows, cols / 32}, low, high);
  w.tensors[0].spec.dtype = safetensors::DType::i8;
  w.tensors[1].spec.dtype = safetensors::DType::f8_e8m0;
  return w;
}

inline void append(std::vector<TestTensor>& to, const PackedWeight& weight) {
  to.insert(to.end(), weight.tensors.begin(), weight.tensors.end());
}

}  // namespace nvfp4
