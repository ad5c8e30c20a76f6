#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace nvfp4::checkpoint {

/// config.json: its text as it was, and the few facts that quantization needs.
struct ModelConfig {
  std::string text;  ///< empty if the model has none
  std::string file;
  std::vector<std::string> model_types;  ///< outermost first, then the language model's
  std::int64_t hidden_size = 0;          ///< of the language model; 0 if unknown
  /// Layers for multi-token prediction lie behind the model's own, from this number on.
  std::optional<std::int64_t> first_mtp_layer;

  bool is(std::string_view model_type) const;
};

/// The name of Mistral's own configuration, which loaders read in place of config.json.
inline constexpr const char* kParamsName = "params.json";
/// Reports whether a file of that name is Mistral's.
bool is_params_text(std::string_view text);

/// Throws FormatError if it is not a JSON object. Python's NaN and Infinity are accepted.
ModelConfig parse_model_config(std::string text, const std::string& file);

/// The language model's own configuration inside a multimodal one; else all of it.
const Json& language_model_config(const Json& json);

/// A JSON object's text, which was parsed before, with the member put at its end, or without it;
/// every other byte stays as it was.
std::string with_member(const std::string& text, std::string_view key, const Json& json);
std::string without_member(const std::string& text, std::string_view key);

/// The text with "quantization_config" added, or replaced, however often it is there and however it
/// is escaped; every other byte stays as it was.
std::string with_quantization_config(const ModelConfig& config, const Json& quantization);
/// Returns the text of Mistral's params.json with that in place of what it said, or without if it
/// is null. Empty if there is no text.
std::string params_with_quantization(ModelConfig params, const Json& quantization);
/// The text without it, in the language model's part of it too.
std::string without_quantization_config(const ModelConfig& config);
/// `text`, which was parsed before, with "bfloat16" for "float32" there, and at its end if it says
/// nothing; every other byte stays as it was.
std::string with_f32_as_bf16(const std::string& text);
/// `text`, which was parsed before, with `dtype` ("float16") wherever it says in which one to load
/// floats; every other byte stays as it was.
std::string with_dtype(const std::string& text, std::string_view dtype);

}  // namespace nvfp4::checkpoint
