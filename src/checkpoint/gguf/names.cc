#include "checkpoint/gguf/names.h"

#include <fmt/format.h>

#include <cmath>

#include "checkpoint/families/family.h"

namespace nvfp4::gguf {
namespace {

/// Endings of tensor names. Names that are complete without one come first.
constexpr std::string_view kEndings[] = {"", ".weight", ".bias"};

struct Numbers {
  std::int64_t layer = -1, expert = -1;
};

/// Removes a number of at most seven digits from the front. Null if there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::size_t digits = 0;
  std::int64_t number = 0;
  for (; digits < text.size() && digits < 7 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
    number = 10 * number + (text[digits] - '0');
  if (digits == 0 || (digits > 1 && text.front() == '0')) return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

/// One of the two names of a NamePair, and the start of the names of layers there.
struct Side {
  std::string_view NamePair::*name;
  std::string_view layers;
};
constexpr Side kModel = {&NamePair::model, "model.layers."}, kFile = {&NamePair::file, "blk."};

constexpr std::string_view kExpert = "{e}";

/// Reports whether a name is the one of a row, and reads its numbers.
bool matches(const NamePair& pair, const Side& side, std::string_view name, Numbers& numbers) {
  const auto take = [&](std::string_view text) {
    if (!name.starts_with(text)) return false;
    name.remove_prefix(text.size());
    return true;
  };
  const auto take_into = [&](std::int64_t& to) {
    const std::optional<std::int64_t> number = take_number(name);
    to = number.value_or(-1);
    return number.has_value();
  };
  const std::string_view pattern = pair.*side.name;
  if (pattern.starts_with('.') && !(take(side.layers) && take_into(numbers.layer))) return false;
  const std::size_t expert = pattern.find(kExpert);
  if (expert == pattern.npos) return name == pattern;
  return take(pattern.substr(0, expert)) && take_into(numbers.expert) &&
         name == pattern.substr(expert + kExpert.size());
}

std::string filled(const NamePair& pair, const Side& side, const Numbers& numbers) {
  std::string name(pair.*side.name);
  if (const std::size_t expert = name.find(kExpert); expert != name.npos)
    name.replace(expert, kExpert.size(), std::to_string(numbers.expert));
  return name.starts_with('.') ? fmt::format("{}{}{}", side.layers, numbers.layer, name) : name;
}

/// A row with that name, and the numbers in the name.
struct Match {
  const NamePair* pair;
  Numbers numbers;
};

std::vector<Match> find_pairs(const Architecture& architecture, const Side& side,
                              std::string_view module) {
  std::vector<Match> found;
  for (const NameGroup& group : architecture.groups)
    for (const NamePair& pair : group.modules) {
      Numbers numbers;
      if (matches(pair, side, module, numbers)) found.push_back({&pair, numbers});
    }
  return found;
}

/// The start of names in the tables.
constexpr std::string_view kPrefix = "model.";

/// Reports whether a row is of an MLP or of experts.
bool is_mlp(const NamePair& pair) { return pair.file.starts_with(".ffn_"); }

}  // namespace

std::vector<const Architecture*> architectures() {
  std::vector<const Architecture*> known;
  for (const checkpoint::Family* family : checkpoint::families())
    if (family->gguf != nullptr) known.push_back(family->gguf);
  for (const Architecture& architecture : known_architectures()) known.push_back(&architecture);
  return known;
}

const Architecture* find_architecture(std::string_view model_type) {
  for (const Architecture* architecture : architectures())
    if (architecture->model_type == model_type) return architecture;
  return nullptr;
}

std::vector<Place> places_of(const Architecture& architecture, std::string_view name) {
  std::string model_name(name);
  if (name.starts_with(architecture.prefix))
    model_name.replace(0, architecture.prefix.size(), kPrefix);
  else if (name.starts_with(kPrefix))
    return {};
  std::vector<Place> places;
  for (const std::string_view ending : kEndings) {
    if (!model_name.ends_with(ending)) continue;
    const std::string module = model_name.substr(0, model_name.size() - ending.size());
    for (const auto& [pair, numbers] : find_pairs(architecture, kModel, module)) {
      Place& place = places.emplace_back();
      place.file_name = filled(*pair, kFile, numbers) + std::string(ending);
      place.layer = numbers.layer;
      place.expert = numbers.expert;
      place.query = pair->file.ends_with(".attn_q");
      place.key = pair->file.ends_with(".attn_k");
      place.scaled =
          pair->scaled && ending == ".weight" && (architecture.scales_mlp || !is_mlp(*pair));
      place.change = pair->change;
      place.heads = pair->heads;
      place.form = pair->form;
    }
    if (!places.empty()) break;
  }
  return places;
}

std::optional<Place> place_of(const Architecture& architecture, std::string_view model_name) {
  std::vector<Place> places = places_of(architecture, model_name);
  return places.empty() ? std::nullopt : std::optional(std::move(places.front()));
}

std::optional<std::string> model_name_of(const Architecture& architecture,
                                         std::string_view file_name, std::int64_t expert) {
  for (const std::string_view ending : kEndings) {
    if (!file_name.ends_with(ending)) continue;
    const std::string_view module = file_name.substr(0, file_name.size() - ending.size());
    const std::vector<Match> found = find_pairs(architecture, kFile, module);
    if (found.empty()) continue;
    std::string name =
        filled(*found[0].pair, kModel, {found[0].numbers.layer, expert}) + std::string(ending);
    if (name.starts_with(kPrefix)) name.replace(0, kPrefix.size(), architecture.prefix);
    return name;
  }
  return std::nullopt;
}

namespace {

/// Returns the rest of a name behind the parts `start`. Null if it has another start.
std::optional<std::string_view> rest_of(std::string_view name, std::string_view start) {
  if (start.empty()) return name;
  if (!name.starts_with(start)) return std::nullopt;
  name.remove_prefix(start.size());
  if (!name.starts_with('.')) return std::nullopt;
  return name.substr(1);
}

std::string joined(std::string_view start, std::string_view rest) {
  return start.empty() ? std::string(rest) : fmt::format("{}.{}", start, rest);
}

}  // namespace

std::string as_layer(const Architecture& architecture, const std::string& model_name,
                     std::int64_t layers) {
  for (const PredictionName& part : architecture.prediction)
    if (const auto rest = rest_of(model_name, part.model))
      return fmt::format("{}layers.{}.{}", architecture.prefix, layers, joined(part.layer, *rest));
  return model_name;
}

std::string as_module(const Architecture& architecture, const std::string& name,
                      std::int64_t layers) {
  const auto inside = rest_of(name, fmt::format("{}layers.{}", architecture.prefix, layers));
  if (!inside) return name;
  for (const PredictionName& part : architecture.prediction)
    if (const auto rest = rest_of(*inside, part.layer)) return joined(part.model, *rest);
  return name;
}

std::vector<std::int64_t> file_shape(Form form, std::vector<std::int64_t> shape,
                                     std::int64_t groups) {
  const std::size_t dimensions = shape.size();
  if (form == Form::column && dimensions == 1) shape.push_back(1);
  if (form == Form::squeezed && dimensions == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);
  if (form == Form::grouped && dimensions == 1 && groups > 0 && shape[0] % groups == 0)
    shape = {groups, shape[0] / groups};
  return shape;
}

std::vector<std::int64_t> model_shape(Form form, std::vector<std::int64_t> shape) {
  if (shape.size() != 2) return shape;
  if (form == Form::column && shape[1] == 1) shape.pop_back();
  if (form == Form::squeezed) shape.insert(shape.begin() + 1, 1);
  if (form == Form::grouped) shape = {shape[0] * shape[1]};
  return shape;
}

std::string file_module_of(const NamePair& pair, std::int64_t layer) {
  return filled(pair, kFile, {layer, 0});
}

std::optional<std::int64_t> layer_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::optional<std::int64_t> number = take_number(name);
  return name.starts_with('.') ? number : std::nullopt;
}

bool stacks_experts(const Architecture& architecture, std::string_view file_name) {
  return model_name_of(architecture, file_name, 0) != model_name_of(architecture, file_name, 1);
}

float changed(float value, Change change) {
  return change == Change::none ? value : change == Change::plus_one ? value + 1 : -std::exp(value);
}

float reverted(float value, Change change) {
  return change == Change::none ? value : change == Change::plus_one ? value - 1 : std::log(-value);
}

std::optional<Order> LinearHeads::order(Heads heads, std::int64_t size) const {
  if (heads == Heads::none) return Order{};
  if (keys <= 0 || values <= 0 || values % keys != 0 || key_size <= 0) return std::nullopt;
  std::int64_t first = 0;
  if (heads == Heads::last_rows) {
    if (key_size > size / keys) return std::nullopt;
    first = 2 * keys * key_size;
  }
  if (first >= size || values > size - first || (size - first) % values != 0) return std::nullopt;
  return Order{first, keys, values / keys, (size - first) / values};
}

std::optional<Split> LinearHeads::split(Heads heads) const {
  constexpr std::int64_t kMost = 1 << 20;  // products of the sizes fit 64 bits
  const bool fits = keys > 0 && values > 0 && key_size > 0 && values % keys == 0 && keys <= kMost &&
                    values <= kMost && key_size <= kMost;
  if (!fits) return std::nullopt;
  const std::int64_t size = values / keys * key_size, period = 2 * (key_size + size);
  if (heads == Heads::grouped_gate) return Split{keys, {{period, 2 * key_size + size, size, 0}}};
  return Split{keys,
               {{period, 0, key_size, 0},
                {period, key_size, key_size, keys * key_size},
                {period, 2 * key_size, size, 2 * keys * key_size}}};
}

std::optional<Split> LatentHeads::split(Heads part) const {
  constexpr std::int64_t kMost = 1 << 13;  // a head fits the memory
  for (const std::int64_t size : {heads, latent, key, value})
    if (size < 1 || size > kMost) return std::nullopt;
  const bool keys = part == Heads::latent_keys;
  return Split{heads, {{key + value, keys ? 0 : key, keys ? key : value, 0}}, true, keys};
}

}  // namespace nvfp4::gguf
