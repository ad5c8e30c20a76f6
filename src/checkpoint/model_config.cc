#include "checkpoint/model_config.h"

#include <algorithm>

#include "checkpoint/json_text.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "quantization_config";

/// Python writes NaN and Infinity, which JSON has not: null in their place, outside of strings.
std::string without_python_numbers(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (!in_string) {
      std::size_t skip = 0;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (skip == 0 && rest.starts_with(word)) skip = word.size();
      if (skip > 0) {
        out += "null";
        i += skip;
        continue;
      }
    }
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      in_string = !in_string;
    out += text[i++];
  }
  return out;
}

void refuse_quantized(const Json& json, const std::string& file) {
  const auto it = json.find(kKey);
  if (it == json.end() || it->is_null()) return;
  std::string method = "unknown";
  if (it->is_object() && it->contains("quant_method") && (*it)["quant_method"].is_string())
    method = (*it)["quant_method"].get<std::string>();
  throw UnsupportedError(fmt::format(
      "{}: the model is already quantized (quant_method {}), the input must be BF16, F16 or F32",
      file, method));
}

}  // namespace

Json parse_config_json(const std::string& text, const std::string& file) {
  try {
    Json json = Json::parse(without_python_numbers(text));
    require<FormatError>(json.is_object(), "{}: must be a JSON object", file);
    return json;
  } catch (const Json::exception& e) {
    throw FormatError(fmt::format("{}: {}", file, parse_failure(e)));
  }
}

const Json& language_model_config(const Json& json) {
  for (const char* key : {"text_config", "llm_config", "language_config"})
    if (const auto it = json.find(key); it != json.end() && it->is_object()) return *it;
  if (const auto it = json.find("thinker_config"); it != json.end() && it->is_object())
    return language_model_config(*it);
  return json;
}

bool ModelConfig::is(std::string_view model_type) const {
  return std::find(model_types.begin(), model_types.end(), model_type) != model_types.end();
}

ModelConfig parse_model_config(std::string text, const std::string& file) {
  ModelConfig config;
  config.file = file;
  const Json json = parse_config_json(text, file);
  const Json& language = language_model_config(json);
  refuse_quantized(json, file);
  refuse_quantized(language, file);
  for (const Json* level : {&json, &language}) {
    const auto type = level->find("model_type");
    if (type != level->end() && type->is_string())
      config.model_types.push_back(type->get<std::string>());
  }
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) {
    const auto size = language.find(key);
    if (size == language.end() || !size->is_number_integer()) continue;
    config.hidden_size = size->get<std::int64_t>();
    break;
  }
  config.text = std::move(text);
  return config;
}

std::string with_quantization_config(const ModelConfig& config, const Json& quantization) {
  Json json = config.text.empty() ? Json::object() : parse_config_json(config.text, config.file);
  // A key that is there is null, or parse_model_config() would have refused it.
  if (config.text.empty() || json.contains(kKey)) {
    json[kKey] = quantization;
    return dump_pretty(json) + "\n";
  }
  const std::size_t brace = config.text.rfind('}');
  const std::size_t last = config.text.find_last_not_of(" \t\r\n", brace - 1);
  std::string value = dump_pretty(quantization);
  for (std::size_t i = 0; (i = value.find('\n', i)) != std::string::npos; i += 3)
    value.insert(i + 1, "  ");
  return config.text.substr(0, last + 1) + (config.text[last] == '{' ? "" : ",") + "\n  \"" + kKey +
         "\": " + value + "\n" + config.text.substr(brace);
}

}  // namespace nvfp4::checkpoint
