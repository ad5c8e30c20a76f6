#include "checkpoint/formats/renamed.h"

#include <algorithm>
#include <set>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/transformers_names.h"
#include "checkpoint/match/expression.h"
#include "checkpoint/match/is_number.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Words = std::vector<std::string_view>;

/// Common prefixes in loaders. They do not identify an excluded part.
constexpr std::string_view kCommon[] = {"model",  "language_model", "text_model", "transformer",
                                        "module", "backbone",       "layers",     "layer",
                                        "blocks", "block",          "h"};

/// Suffix of a family's `tied_head` that stands for several heads.
constexpr std::string_view kAll = ".*";

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '_') out += '\\';
    out += c;
  }
  return out;
}

constexpr std::string_view kExpression = "re:";

/// Returns an expression for a module with any prefix.
std::string at_end(std::string_view name) {
  return fmt::format("{}(.*\\.)?{}$", kExpression, escaped(name));
}
/// Returns an expression for everything in a part of the model.
std::string all_in(std::string_view part) {
  return fmt::format("{}(.*\\.)?{}\\..*", kExpression, escaped(part));
}

class Renamed {
 public:
  explicit Renamed(const ConfigFacts& facts) : facts_(facts) {
    for (const std::string& module : facts.quantized) add(module);
    for (const Fp8Module& module : facts.fp8) add(module.name);
  }

  std::vector<std::string> entries() {
    std::set<std::string> towers, others;
    std::vector<const std::string*> rest;
    for (const KeptModule& module : facts_.kept) {
      if (!module.linear || !expert_layer_of(module.name).empty()) continue;
      // A tower is a part of the model outside its layers.
      const Words parts = split_name(module.name);
      const auto end = std::ranges::find_if(parts, is_number);
      const auto own = std::find_if(parts.begin(), end, [&](auto part) { return is_own(part); });
      if (own != end && own + 1 != parts.end())
        towers.insert(all_in(*own));
      else
        rest.push_back(&module.name);
    }
    if (!towers.empty())
      for (const std::string* name : rest)
        if (std::string entry = by_end(*name); !entry.empty()) others.insert(std::move(entry));
    if (const auto head = tied_head(facts_.model_types)) {
      const std::string_view part = head->substr(0, head->size() - kAll.size());
      if (head->ends_with(kAll) && is_own(part)) others.insert(all_in(part));
      if (!head->ends_with(kAll) && !is_quantized(*head)) others.insert(at_end(*head));
    }
    std::vector<std::string> entries(towers.begin(), towers.end());
    entries.insert(entries.end(), others.begin(), others.end());
    add_names(entries);
    return entries;
  }

 private:
  void add(const std::string& module) {
    reversed_.emplace(module.rbegin(), module.rend());
    for (const std::string_view part : split_name(module)) parts_.emplace(part);
  }

  /// Adds the names in transformers of modules that no expression matches.
  void add_names(std::vector<std::string>& entries) const {
    if (facts_.model_types.empty()) return;
    const TransformersNames names(facts_.model_types.front());
    std::vector<Expression> expressions;
    expressions.reserve(entries.size());
    for (const std::string& entry : entries)
      expressions.emplace_back(entry.substr(kExpression.size()), Expression::Extent::start);
    for (const KeptModule& module : facts_.kept) {
      if (!module.linear || !expert_layer_of(module.name).empty()) continue;
      std::string name = names.name_of(module.name);
      if (name == module.name || is_quantized(name)) continue;
      const bool held = std::ranges::any_of(
          expressions, [&](const Expression& expression) { return expression.matches(name); });
      if (!held) entries.push_back(std::move(name));
    }
  }

  /// Reports whether no quantized module has this part.
  bool is_own(std::string_view part) const {
    return !is_number(part) && std::ranges::find(kCommon, part) == std::end(kCommon) &&
           !parts_.contains(part);
  }

  bool is_quantized(std::string_view end) const {
    const std::string reversed(end.rbegin(), end.rend());
    if (reversed_.contains(reversed)) return true;
    const auto it = reversed_.lower_bound(reversed + ".");
    return it != reversed_.end() && it->starts_with(reversed + ".");
  }

  /// Returns an expression for the last part, or for the name from the part before its first number
  /// on.
  std::string by_end(const std::string& name) const {
    const Words parts = split_name(name);
    if (is_own(parts.back())) return at_end(parts.back());
    const auto number = std::ranges::find_if(parts, is_number);
    if (number == parts.end() || number == parts.begin()) return {};
    const auto from = static_cast<std::size_t>((number - 1)->data() - name.data());
    const std::string_view end = std::string_view(name).substr(from);
    return is_quantized(end) ? std::string() : at_end(end);
  }

  const ConfigFacts& facts_;
  std::set<std::string> reversed_;  ///< reversed names of quantized modules
  std::set<std::string, std::less<>> parts_;
};

}  // namespace

std::vector<std::string> renamed_excludes(const ConfigFacts& facts) {
  return Renamed(facts).entries();
}

std::optional<std::string_view> tied_head(std::span<const std::string> model_types) {
  if (model_types.empty()) return std::nullopt;
  for (const Family* family : families_of(model_types.front()))
    if (!family->tied_head.empty()) return family->tied_head;
  return std::nullopt;
}

}  // namespace nvfp4::checkpoint
