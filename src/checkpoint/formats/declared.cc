#include "checkpoint/formats/declared.h"

#include <algorithm>
#include <cctype>

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/io/json_text.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

std::vector<std::string> strings_of(const Json& json, const char* key) {
  std::vector<std::string> out;
  for (const Json& entry : list_of(json, key))
    if (entry.is_string()) out.push_back(entry.get<std::string>());
  return out;
}

DeclaredGroup group_of(const Json& json) {
  DeclaredGroup group;
  group.targets = strings_of(json, "targets");
  group.format = text_of(json, "format");
  const Json& weights = member_of(json, "weights");
  group.bits = integer_of(weights, "num_bits");
  group.group_size = integer_of(weights, "group_size");
  group.is_float = !weights.is_object() || text_of(weights, "type") == "float";
  group.is_symmetric = member_of(weights, "symmetric") != false;
  group.activations = member_of(json, "input_activations").is_object();
  return group;
}

/// Returns the first text of a member that contains "e5m3", as "key = 'text'". Empty if none does.
/// `list` is the key of `json` if that is a list.
std::string e5m3_member(const Json& json, const std::string& list = {}) {
  for (auto it = json.begin(); it != json.end(); ++it) {  // items() would copy each key
    const Json& value = *it;
    const std::string& key = json.is_object() ? it.key() : list;
    if (value.is_structured()) {
      if (std::string inner = e5m3_member(value, key); !inner.empty()) return inner;
    } else if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
      if (text.find('5') != text.npos &&
          !std::ranges::search(text, std::string_view("e5m3"), same).empty())
        return fmt::format("{} = '{}'", printable(key), printable(text));
    }
  }
  return {};
}

/// Reports whether a value is null, or only holds values that are.
bool is_nothing(const Json& json) {
  return json.is_null() || (json.is_structured() && std::ranges::all_of(json, is_nothing));
}

/// Returns the member of a configuration that declares a form that is not read, or null.
std::optional<UnreadMember> unread_member(const Json& json, const std::string& file) {
  if (is_mlx(json)) {
    const std::string mode = json.contains("mode") ? text_of(json, "mode") : "affine";
    const std::int64_t bits = integer_of(json, "bits"), group = integer_of(json, "group_size");
    if (mode != "nvfp4" || bits != 4 || group != 16)
      return UnreadMember{file,
                          fmt::format("mode = '{}', bits = {} and group_size = {}, must be nvfp4, "
                                      "4 and 16",
                                      printable(mode), bits, group),
                          fmt::format("MLX, {}", printable(mode))};
  }
  // Source: github.com/vllm-project/compressed-tensors, transform/transform_config.py.
  if (!is_nothing(member_of(json, "transform_config")))
    return UnreadMember{file, "transform_config is there, so weights are rotated",
                        "rotated weights of compressed-tensors"};
  if (const std::string e5m3 = e5m3_member(json); !e5m3.empty())
    return UnreadMember{file, e5m3 + ", block scales must be E4M3", "NVFP4 with E5M3 block scales"};
  return std::nullopt;
}

Declared parse(const Json& json, const std::string& file, const SharedBudget& budget) {
  Declared d;
  d.file = file;
  d.budget = budget;
  d.method = is_mlx(json) ? "mlx" : text_of(json, "quant_method");
  if (d.method == "fp8") d.json = json;
  d.algorithm = text_of(json, "quant_algo");
  d.format = text_of(json, "format");
  d.unread = unread_member(json, file);
  d.moe_algorithm = text_of(json, "moe_quant_algo");
  d.checkpoint_format = text_of(json, "checkpoint_format");
  d.version = text_of(json, "version");
  // GPTQModel and AutoRound list layers with other bits under these keys.
  if (is_nothing(member_of(json, "dynamic")) && is_nothing(member_of(json, "extra_config")))
    d.bits = integer_of(json, "bits");
  for (const char* key : {"ignore", "exclude_modules", "modules_to_not_convert", "exclude"})
    for (std::string& entry : strings_of(json, key)) d.ignore.push_back(std::move(entry));
  if (member_of(json, "group_size").is_number_integer())
    d.group_size = integer_of(json, "group_size");
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"})
    if (json.contains(key)) d.kv_cache = json[key];
  for (const auto& [name, group] : object_of(json, "config_groups").items())
    if (group.is_object()) d.groups.push_back(group_of(group));
  for (const auto& [name, layer] : object_of(json, "quantized_layers").items())
    d.layers[name] = text_of(layer, "quant_algo");
  for (const auto& [name, algorithm] : d.layers)
    if (name.find('*') != std::string::npos) d.layer_globs.emplace_back(Glob(name), algorithm);
  std::vector<std::string_view> globs;
  globs.reserve(d.layer_globs.size());
  for (const auto& [glob, algorithm] : d.layer_globs) globs.push_back(glob.text());
  d.layer_index = GlobIndex(globs);
  return d;
}

}  // namespace

std::optional<bool> Declared::activations() const {
  if (algorithm.starts_with("W4A16")) return false;
  if (algorithm == "NVFP4" || algorithm.starts_with("NVFP4_") || moe_algorithm == "NVFP4")
    return true;
  for (const DeclaredGroup& group : groups)
    if (group.is_nvfp4()) return group.activations;
  return std::nullopt;
}

bool Declared::has_one_scheme() const {
  const std::optional<bool> first = activations();
  return layers.empty() && moe_algorithm.empty() &&
         std::ranges::all_of(groups, [&](const DeclaredGroup& group) {
           return !group.is_nvfp4() || group.activations == first;
         });
}

const std::string* Declared::layer_algorithm(const std::string& module) const {
  for (std::size_t end = module.size(); end != std::string::npos; end = module.rfind('.', end)) {
    if (const auto it = layers.find(module.substr(0, end)); it != layers.end()) return &it->second;
    if (end-- == 0) break;
  }
  for (const std::size_t i : layer_index.candidates(module, *budget))
    if (layer_globs[i].first.matches(module, *budget)) return &layer_globs[i].second;
  return nullptr;
}

DeclaredTargets::DeclaredTargets(const Declared& declared) : declared_(declared) {
  std::size_t place = 0;
  for (const DeclaredGroup& group : declared.groups)
    for (const std::string& target : group.targets) {
      of_linear_ |= target == "Linear";
      if (!target.empty() && std::isupper(static_cast<unsigned char>(target[0]))) {
        general_.push_back(&group);  // a class such as "RoutedExperts"
        continue;
      }
      Alike& alike = named_[{group.fits(4), group.fits(8), group.is_nvfp4(), group.activations}];
      if (alike.group == nullptr) alike.group = &group;
      alike.targets.push_back(target);
      alike.places.emplace_back(place++, &group);
    }
  for (auto& [key, alike] : named_)
    alike.list.emplace(alike.targets, declared.file, declared.budget);
}

template <class Fit>
const std::pair<std::size_t, const DeclaredGroup*>* DeclaredTargets::first(
    const std::string& module, Fit fit) const {
  const std::pair<std::size_t, const DeclaredGroup*>* first = nullptr;
  for (const auto& [key, alike] : named_) {
    if (!fit(*alike.group)) continue;
    const auto target = alike.list->first(module);
    if (target && (first == nullptr || alike.places[*target] < *first))
      first = &alike.places[*target];
  }
  return first;
}

DeclaredTargets::Group DeclaredTargets::group_of(const std::string& module,
                                                 std::int64_t bits) const {
  const auto fits = [bits](const DeclaredGroup& group) { return group.fits(bits); };
  if (const auto* any = first(module, [](const DeclaredGroup&) { return true; }))
    return {any->second, fits(*any->second) || first(module, fits) != nullptr};
  if (general_.empty()) return {};
  return {general_.front(),
          std::ranges::any_of(general_, [&](const DeclaredGroup* group) { return fits(*group); })};
}

bool DeclaredTargets::hold(const std::string& module) const {
  return declared_.groups.empty() || of_linear_ ||
         first(module, [](const DeclaredGroup&) { return true; }) != nullptr;
}

std::optional<bool> DeclaredTargets::activations_of(const std::string& module) const {
  if (const std::string* own = declared_.layer_algorithm(module); own != nullptr && !own->empty())
    return !own->starts_with("W4A16");
  if (!declared_.algorithm.empty() && !declared_.is_mixed()) return declared_.activations();
  if (const auto* named = first(module, [](const DeclaredGroup& g) { return g.is_nvfp4(); }))
    return named->second->activations;
  const auto of_linear = std::ranges::find_if(declared_.groups, [](const DeclaredGroup& group) {
    return group.is_nvfp4() && std::ranges::find(group.targets, "Linear") != group.targets.end();
  });
  return of_linear != declared_.groups.end() ? std::optional(of_linear->activations)
                                             : declared_.activations();
}

std::optional<Declared> declared_in_config(const std::string& text, const std::string& file,
                                           const SharedBudget& budget) {
  return declared_in_config(parse_config_json(text, file), file, budget);
}

std::optional<Declared> declared_in_config(const Json& json, const std::string& file,
                                           const SharedBudget& budget) {
  // vLLM and transformers also read the key of older versions of compressed-tensors. MLX's own key
  // is the last one.
  std::optional<Declared> first;
  constexpr const char* kMlxKey = "quantization";
  for (const char* key : {"quantization_config", "compression_config", kMlxKey})
    for (const Json* level : {&json, &language_model_config(json)})
      if (const Json& found = member_of(*level, key); found.is_object()) {
        if (key == kMlxKey && !is_mlx(found)) continue;
        if (!first)
          first = parse(found, file, budget);
        else if (!first->unread)
          first->unread = unread_member(found, file);
      }
  return first;
}

std::optional<Declared> declared_in_params(const std::string& text, const std::string& file,
                                           const SharedBudget& budget) {
  const Json json = parse_config_json(text, file);
  for (const char* key : {"quantization_config", "quantization"})
    if (const Json& found = member_of(json, key); found.is_object()) {
      Declared d = parse(found, file, budget);
      // Source: github.com/vllm-project/vllm, transformers_utils/configs/mistral.py.
      if (d.method.empty() && text_of(found, "qformat_weight").starts_with("fp8")) d.method = "fp8";
      if (!d.unread) d.unread = unread_member(json, file);
      return d;
    }
  return std::nullopt;
}

Declared declared_in_hf_quant_config(const std::string& text, const std::string& file,
                                     const SharedBudget& budget) {
  const Json json = parse_config_json(text, file);
  const Json& found = member_of(json, "quantization");
  require<FormatError>(found.is_object(), "{}: quantization is missing, must be an object", file);
  Declared d = parse(found, file, budget);
  if (!d.unread) d.unread = unread_member(json, file);
  for (const char* key : {"group_size", "kv_cache_quant_algo", "exclude_modules"})
    if (!found.contains(key)) d.missing_keys.push_back(key);
  return d;
}

}  // namespace nvfp4::checkpoint
