#include "checkpoint/families/transformers_names.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/match/pattern.h"

namespace nvfp4::checkpoint {
namespace {

using NameParts = std::vector<std::string_view>;

NameParts split(std::string_view name) { return name.empty() ? NameParts() : split_name(name); }

bool is_like(std::string_view pattern, std::string_view part) {
  return pattern == part || (pattern == "#" && is_number(part));
}

/// Reports whether the name starts with these parts.
bool starts_with(const NameParts& name, const NameParts& start) {
  return start.size() <= name.size() &&
         std::equal(start.begin(), start.end(), name.begin(), is_like);
}

/// Returns the rules of a model type.
std::string_view rules_of(std::string_view model_type) {
  constexpr std::string_view kBetween = " | ";
  for (const std::string_view line : split_name(kTransformersNames, '\n')) {
    const std::size_t end = line.find(kBetween);
    if (end == line.npos) continue;
    const auto types = split_name(line.substr(0, end), ' ');
    if (std::ranges::find(types, model_type) != types.end())
      return line.substr(end + kBetween.size());
  }
  return {};
}

}  // namespace

TransformersNames::TransformersNames(std::string_view model_type) {
  if (const auto rules = rules_of(model_type); !rules.empty())
    for (const std::string_view rule : split_name(rules, ' ')) {
      const std::size_t arrow = rule.find('>');
      rules_.push_back({split(rule.substr(0, arrow)), split(rule.substr(arrow + 1))});
    }
}

std::string TransformersNames::name_of(std::string_view module) const {
  const Parts parts = split_name(module);
  const Rule* best = nullptr;
  std::size_t renamed = 0;  // parts of the longest new start of this name; if longer, the
                            // checkpoint has the new names
  for (const Rule& rule : rules_) {
    if (starts_with(parts, rule.new_start)) renamed = std::max(renamed, rule.new_start.size());
    if (!starts_with(parts, rule.old_start)) continue;
    if (best == nullptr || best->old_start.size() < rule.old_start.size()) best = &rule;
  }
  if (best == nullptr || renamed > best->old_start.size()) return std::string(module);
  Parts numbers, out;
  for (std::size_t i = 0; i < best->old_start.size(); ++i)
    if (best->old_start[i] == "#") numbers.push_back(parts[i]);
  auto number = numbers.begin();
  for (const std::string_view part : best->new_start)
    out.push_back(part == "#" && number != numbers.end() ? *number++ : part);
  out.insert(out.end(), parts.begin() + static_cast<std::ptrdiff_t>(best->old_start.size()),
             parts.end());
  return fmt::format("{}", fmt::join(out, "."));
}

}  // namespace nvfp4::checkpoint
