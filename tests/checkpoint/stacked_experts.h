#pragma once

#include "checkpoint/models.h"
#include "testing.h"

/// Experts in NVFP4, stacked as ModelOpt stores those of Llama 4 and GPT-OSS, and one by one.
namespace nvfp4 {

struct StackForm {
  const char* name;
  const char* model_type;
  bool transposed;  ///< [E, K / 2, N]
  bool each;        ///< a global and an input scale for each expert
  bool interleaved() const { return std::string(model_type) == "gpt_oss"; }
};

inline constexpr StackForm kStackForms[] = {
    {"Llama4", "llama4_text", true, false},  {"GptOss", "gpt_oss", true, false},
    {"GptOssRows", "gpt_oss", false, true},  {"Rows", "motif", false, true},
    {"RowsOneScale", "motif", false, false}, {"Columns", "motif", true, true}};

/// Random bytes; a row of gate and up is 2 I long, whatever their order in the file.
struct StackedExperts {
  std::int64_t experts = 3, hidden = 64, intermediate = 96;
  StackForm form;
  std::vector<TestTensor> stacks, single;

  explicit StackedExperts(const StackForm& f, std::int64_t e = 3, std::int64_t h = 64,
                          std::int64_t i = 96)
      : experts(e), hidden(h), intermediate(i), form(f) {
    add("gate_up_proj", {"gate_proj", "up_proj"}, 2 * intermediate, hidden, 0.0102f);
    add("down_proj", {"down_proj"}, hidden, intermediate, 0.0303f);
    for (auto* list : {&stacks, &single}) {
      list->push_back(random_tensor("model.embed_tokens.weight", {128, hidden}));
      list->push_back(random_tensor(kPrefix + "down_proj_bias", {experts, hidden}));
    }
  }

  static inline const std::string kPrefix = "model.layers.0.mlp.experts.";

  std::string config() const {
    const auto numbers =
        nlohmann::json{{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
    return nlohmann::json{
        {"architectures", {"X"}},
        {"model_type", form.model_type},
        {"hidden_size", hidden},
        {"quantization_config",
         {{"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"ignore", {"lm_head"}},
          {"config_groups",
           {{"group_0",
             {{"input_activations", numbers}, {"weights", numbers}, {"targets", {"Linear"}}}}}}}}}
        .dump();
  }
  void write(const std::filesystem::path& stacked, const std::filesystem::path& one_by_one) const {
    write_model(stacked, {stacks}, config());
    write_model(one_by_one, {single}, config());
  }

 private:
  using Bytes = std::vector<std::byte>;

  /// [rows, bytes] of each expert, with the rows of `parts` one below the other.
  void add(const std::string& stack, const std::vector<std::string>& parts, std::int64_t rows,
           std::int64_t cols, float global) {
    std::vector<Bytes> codes, scales;
    std::vector<float> globals, inputs;
    for (std::int64_t e = 0; e < experts; ++e) {
      codes.push_back(random_bytes(rows * cols / 2, 0, 255));
      scales.push_back(random_bytes(rows * cols / 16, 0x20, 0x7E));
      globals.push_back(global * static_cast<float>(form.each ? e + 1 : 1));
      inputs.push_back(2 * globals.back());
      const std::int64_t n = rows / static_cast<std::int64_t>(parts.size());
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::string module = kPrefix + std::to_string(e) + "." + parts[p];
        const auto part = [&](const Bytes& all, std::int64_t width) {
          const auto begin = all.begin() + static_cast<std::int64_t>(p) * n * width;
          return Bytes(begin, begin + n * width);
        };
        single.push_back({{module + ".weight", U8, {n, cols / 2}}, part(codes.back(), cols / 2)});
        single.push_back(
            {{module + ".weight_scale", F8, {n, cols / 16}}, part(scales.back(), cols / 16)});
        single.push_back({{module + ".weight_scale_2", F32, {}}, encode({globals.back()}, F32)});
        single.push_back({{module + ".input_scale", F32, {}}, encode({inputs.back()}, F32)});
      }
    }
    const bool mixed = parts.size() == 2 && form.interleaved();
    const std::string name = kPrefix + stack;
    stacks.push_back({{name, U8, shape(rows, cols / 2)}, stacked(codes, rows, cols / 2, mixed)});
    stacks.push_back({{name + "_weight_scale", F8, shape(rows, cols / 16)},
                      stacked(scales, rows, cols / 16, mixed)});
    if (!form.each) globals.resize(1), inputs.resize(1);
    const std::vector<std::int64_t> scalars =
        form.each ? std::vector<std::int64_t>{experts} : std::vector<std::int64_t>{};
    stacks.push_back({{name + "_weight_scale_2", F32, scalars}, encode(globals, F32)});
    stacks.push_back({{name + "_input_scale", F32, scalars}, encode(inputs, F32)});
  }

  std::vector<std::int64_t> shape(std::int64_t rows, std::int64_t width) const {
    return form.transposed ? std::vector{experts, width, rows} : std::vector{experts, rows, width};
  }

  Bytes stacked(const std::vector<Bytes>& matrices, std::int64_t rows, std::int64_t width,
                bool mixed) const {
    Bytes out;
    for (const Bytes& m : matrices) {
      const std::size_t base = out.size();
      out.resize(base + m.size());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t row = mixed ? r % (rows / 2) * 2 + r / (rows / 2) : r;
          const std::int64_t at = form.transposed ? c * rows + row : row * width + c;
          out[base + static_cast<std::size_t>(at)] = m[static_cast<std::size_t>(r * width + c)];
        }
    }
    return out;
  }

  Bytes random_bytes(std::int64_t n, int low, int high) {
    std::uniform_int_distribution<int> pick(low, high);
    Bytes bytes(static_cast<std::size_t>(n));
    for (std::byte& b : bytes) b = static_cast<std::byte>(pick(random_));
    return bytes;
  }

  static constexpr auto U8 = safetensors::DType::u8, F8 = safetensors::DType::f8_e4m3,
                        F32 = safetensors::DType::f32;
  std::mt19937 random_{7};
};

}  // namespace nvfp4
