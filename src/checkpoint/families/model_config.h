#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"

namespace nvfp4::checkpoint {

/// The unchanged text of config.json, and the facts that quantization needs.
struct ModelConfig {
  std::string text;  ///< empty if the model has no config.json
  std::string file;
  std::vector<std::string> model_types;   ///< outermost first, then the language model's
  std::string architecture;               ///< the first of "architectures"
  std::string diffusers_class;            ///< "_class_name" of a model of diffusers
  bool quantizes_language_model = false;  ///< has a quantization_config in the part for text
  std::int64_t hidden_size = 0;           ///< for the language model; 0 if unknown
  /// Number of the first layer for multi-token prediction. These layers follow the model's own.
  std::optional<std::int64_t> first_mtp_layer;

  bool is(std::string_view model_type) const;
};

/// The name of Mistral's own configuration, which loaders read instead of config.json.
inline constexpr const char* kParamsName = "params.json";
/// Reports whether the text of a params.json is Mistral's.
bool is_params_text(std::string_view text);

/// Parses config.json. Python's NaN and Infinity are accepted. Throws FormatError if the text is
/// not a JSON object.
ModelConfig parse_model_config(std::string text, const std::string& file);
/// Returns the same for a text that was parsed.
ModelConfig parse_model_config(std::string text, const std::string& file, const Json& json);

/// Returns the configuration of the language model in a multimodal one, otherwise the whole
/// configuration.
const Json& language_model_config(const Json& json);

/// Reports whether a configuration of quantization is that of MLX, which names no method.
/// Source: github.com/ml-explore/mlx-lm, mlx_lm/utils.py, load_model().
bool is_mlx(const Json& json);

/// Returns the text of a valid JSON object with the member at its end, or without it. All other
/// bytes stay.
std::string with_member(const std::string& text, std::string_view key, const Json& json);
std::string without_member(const std::string& text, std::string_view key);

/// Returns the text with this "quantization_config" instead of all others, however they are
/// escaped, also as the member `alias` unless that is empty. All other bytes stay.
std::string with_quantization_config(const ModelConfig& config, const Json& quantization,
                                     std::string_view alias = {});
/// Returns the text of Mistral's params.json with this quantization, or with none if it is null. An
/// empty text stays empty.
std::string params_with_quantization(ModelConfig params, const Json& quantization);
/// Returns the text without "quantization_config", also in the language model's part.
std::string without_quantization_config(const ModelConfig& config);
/// Returns a valid `text` with the dtype "bfloat16" instead of "float32", and adds the entry if
/// there is none. All other bytes stay.
std::string with_f32_as_bf16(const std::string& text);
/// Returns a valid `text` with `dtype` ("float16") in each entry that names a 16-bit dtype for
/// loading. All other bytes stay.
std::string with_dtype(const std::string& text, std::string_view dtype);

}  // namespace nvfp4::checkpoint
