#include "checkpoint/model_config.h"

#include <algorithm>
#include <cctype>

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

/// Bytes [begin, end) of a member of the outermost object, with the comma that goes with it.
struct Range {
  std::size_t begin = 0, end = 0;
};

/// Empty if there is no such member. `text` is an object.
Range member_range(const std::string& text, std::string_view key) {
  Range range;
  int depth = 0;
  std::size_t comma = std::string::npos;  // before the member, or the opening brace
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      const std::size_t after = text.find_first_not_of(" \t\r\n", end + 1);
      const bool is_key = after != std::string::npos && text[after] == ':';
      if (depth == 1 && is_key && text.compare(i + 1, end - i - 1, key) == 0 &&
          end - i - 1 == key.size()) {
        inside = true;
        range.begin = text[comma] == ',' ? comma : comma + 1;
      }
      i = end;
      continue;
    }
    const bool closes = c == '}' || c == ']';
    if (inside && depth == 1 && (c == ',' || closes)) {
      range.end = i;
      if (text[comma] != ',' && c == ',') range.end = i + 1;  // it was the first of several
      while (range.end > range.begin && closes && std::isspace(text[range.end - 1]) != 0)
        --range.end;
      return range;
    }
    if (c == '{' || c == '[') ++depth;
    if (closes) --depth;
    if (depth == 1 && (c == ',' || c == '{')) comma = i;
  }
  return {};
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

std::string without_quantization_config(const ModelConfig& config) {
  const Json json =
      config.text.empty() ? Json::object() : parse_config_json(config.text, config.file);
  const Json& language = language_model_config(json);
  if (&language != &json && language.contains(kKey)) {  // rare enough to lose the formatting
    Json whole = json;
    for (auto& [key, value] : whole.items())
      if (value.is_object()) value.erase(kKey);
    whole.erase(kKey);
    return dump_pretty(whole) + "\n";
  }
  std::string text = config.text;
  if (json.contains(kKey)) {
    const Range range = member_range(text, kKey);
    text.erase(range.begin, range.end - range.begin);
  }
  return text;
}

std::string with_dtype(const std::string& text, const std::string& file, std::string_view dtype) {
  if (text.empty()) return text;
  Json json = parse_config_json(text, file);
  bool changes = false;
  const auto set = [&](Json& object) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      const auto it = object.find(key);
      if (it == object.end() || !it->is_string()) continue;
      const auto& name = it->get_ref<const std::string&>();
      const bool known = name == "bfloat16" || name == "float16";  // FP32 loses nothing
      if (!known || name == dtype) continue;
      *it = dtype;
      changes = true;
    }
  };
  set(json);
  for (auto& [key, part] : json.items())  // of a multimodal model
    if (part.is_object()) set(part);
  return changes ? dump_pretty(json) + "\n" : text;
}

std::string with_quantization_config(const ModelConfig& config, const Json& quantization) {
  if (config.text.empty()) return dump_pretty(Json{{kKey, quantization}}) + "\n";
  const std::string text = without_quantization_config(config);
  const std::size_t brace = text.rfind('}');
  const std::size_t last = text.find_last_not_of(" \t\r\n", brace - 1);
  std::string value = dump_pretty(quantization);
  for (std::size_t i = 0; (i = value.find('\n', i)) != std::string::npos; i += 3)
    value.insert(i + 1, "  ");
  return text.substr(0, last + 1) + (text[last] == '{' ? "" : ",") + "\n  \"" + kKey +
         "\": " + value + "\n" + text.substr(brace);
}

}  // namespace nvfp4::checkpoint
