#include "checkpoint/families/model_config.h"

#include <algorithm>

#include "checkpoint/base/json_members.h"
#include "checkpoint/io/json_text.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr const char *kKey = "quantization_config", *kOldKey = "compression_config",
                     *kMlxKey = "quantization";
constexpr const char* kThinker = "thinker_config";  ///< a multimodal model in another one

/// Calls visit(members) for the outermost object, then for the parts of a multimodal model.
template <class Visit>
void visit_parts(std::string_view text, Visit visit) {
  const std::vector<JsonMember> whole = json_members(text, text.find('{'));
  visit(whole);
  for (const JsonMember& part : whole) {
    if (part.key == kKey || !part.is_object(text)) continue;
    const std::vector<JsonMember> members = json_members(text, part.begin);
    visit(members);
    if (part.key != kThinker) continue;
    for (const JsonMember& inner : members)
      if (inner.key != kKey && inner.is_object(text)) visit(json_members(text, inner.begin));
  }
}

/// Returns the integer of the first key that has one.
std::optional<std::int64_t> first_integer(const Json& json,
                                          std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (member_of(json, key).is_number_integer()) return integer_of(json, key);
  return {};
}

}  // namespace

const Json& language_model_config(const Json& json) {
  const Json& thinker = member_of(json, kThinker);
  const Json& inner = thinker.is_object() ? thinker : json;
  for (const Json* level : {&json, &inner})
    for (const char* key : {"text_config", "llm_config", "language_config"})
      if (const Json& found = member_of(*level, key); found.is_object()) return found;
  return inner;
}

bool is_mlx(const Json& json) {
  return !json.contains("quant_method") && json.contains("group_size") && json.contains("bits");
}

bool ModelConfig::is(std::string_view model_type) const {
  return std::find(model_types.begin(), model_types.end(), model_type) != model_types.end();
}

bool is_params_text(std::string_view text) {
  const Json json = parse_json_or_null<Json>(text);
  return json.is_object() && json.contains("dim") && json.contains("n_layers");
}

ModelConfig parse_model_config(std::string text, const std::string& file) {
  const Json json = parse_config_json(text, file);
  return parse_model_config(std::move(text), file, json);
}

ModelConfig parse_model_config(std::string text, const std::string& file, const Json& json) {
  ModelConfig config;
  config.file = file;
  if (const Json& names = list_of(json, "architectures"); !names.empty() && names[0].is_string())
    config.architecture = names[0].get<std::string>();
  config.diffusers_class = text_of(json, "_class_name");
  const Json& language = language_model_config(json);
  for (const Json* level : {&json, &language}) {
    if (member_of(*level, "model_type").is_string())
      config.model_types.push_back(text_of(*level, "model_type"));
  }
  config.hidden_size = first_integer(language, {"hidden_size", "n_embd", "d_model"}).value_or(0);
  if (first_integer(language, {"num_nextn_predict_layers", "mtp_num_hidden_layers"}).value_or(0) >
      0)
    config.first_mtp_layer = first_integer(language, {"num_hidden_layers"});
  config.quantizes_language_model =
      &language != &json && (language.contains(kKey) || language.contains(kOldKey) ||
                             is_mlx(language.value(kMlxKey, Json())));
  config.text = std::move(text);
  return config;
}

std::string without_quantization_config(const ModelConfig& config) {
  if (config.text.empty()) return {};
  JsonEdits edits(config.text);
  bool outermost = true;
  visit_parts(config.text, [&](const std::vector<JsonMember>& members) {
    const auto is_of_mlx = [&](const JsonMember& m) {
      return m.key == kMlxKey && m.is_object(config.text) &&
             is_mlx(parse_config_json(config.text.substr(m.begin, m.end - m.begin), config.file));
    };
    if (outermost || config.quantizes_language_model) {
      for (const char* key : {kKey, kOldKey}) edits.remove(members, key);
      if (std::ranges::any_of(members, is_of_mlx)) edits.remove(members, kMlxKey);
    }
    outermost = false;
  });
  return edits.apply();
}

std::string with_dtype(const std::string& text, std::string_view dtype) {
  if (text.empty()) return text;
  JsonEdits edits(text);
  visit_parts(text, [&](const std::vector<JsonMember>& members) {
    for (const JsonMember& m : members) {
      if (m.key != "torch_dtype" && m.key != "dtype") continue;
      const std::string name = json_string(text, m);
      const bool known = name == "bfloat16" || name == "float16";  // FP32 loses nothing and stays
      if (known && name != dtype) edits.replace(m.begin, m.end, fmt::format("\"{}\"", dtype));
    }
  });
  return edits.apply();
}

std::string with_f32_as_bf16(const std::string& text) {
  if (text.empty()) return text;
  JsonEdits edits(text);
  bool outermost = true, any = false;
  visit_parts(text, [&](const std::vector<JsonMember>& members) {
    for (const JsonMember& m : members) {
      if (m.key != "torch_dtype" && m.key != "dtype") continue;
      const std::string name = json_string(text, m);
      if (name == "float32") edits.replace(m.begin, m.end, "\"bfloat16\"");
      any |= outermost && !name.empty();
    }
    if (outermost && !any && !members.empty())
      edits.replace(members.back().end, members.back().end, ",\n  \"dtype\": \"bfloat16\"");
    outermost = false;
  });
  return edits.apply();
}

std::string without_member(const std::string& text, std::string_view key) {
  JsonEdits edits(text);
  edits.remove(json_members(text, text.find('{')), key);
  return edits.apply();
}

std::string with_member(const std::string& given, std::string_view key, const Json& json) {
  const std::string text = without_member(given, key);
  const std::size_t brace = text.rfind('}');
  const std::size_t last = text.find_last_not_of(" \t\r\n", brace - 1);
  std::string value;
  for (const char c : dump_pretty(json)) {
    value += c;
    if (c == '\n') value += "  ";
  }
  return fmt::format("{}{}\n  \"{}\": {}\n{}", text.substr(0, last + 1),
                     text[last] == '{' ? "" : ",", key, value, text.substr(brace));
}

std::string with_quantization_config(const ModelConfig& config, const Json& quantization,
                                     std::string_view alias) {
  const std::string text =
      config.text.empty() ? dump_pretty(Json{{kKey, quantization}}) + "\n"
                          : with_member(without_quantization_config(config), kKey, quantization);
  return alias.empty() ? text : with_member(text, alias, quantization);
}

std::string params_with_quantization(ModelConfig params, const Json& quantization) {
  if (params.text.empty()) return {};
  params.text = without_member(params.text, "quantization");
  return quantization.is_null() ? without_quantization_config(params)
                                : with_quantization_config(params, quantization);
}

}  // namespace nvfp4::checkpoint
