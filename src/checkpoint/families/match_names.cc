#include "checkpoint/families/match_names.h"

#include <algorithm>

namespace nvfp4::checkpoint {
namespace {

/// Reports whether a pattern "x", "x*", "*x" or "*x*" matches one part.
bool part_matches(std::string_view pattern, std::string_view part) {
  const bool from = pattern.starts_with('*');
  if (from) pattern.remove_prefix(1);
  const bool to = pattern.ends_with('*');
  if (to) pattern.remove_suffix(1);
  if (from && to) return part.find(pattern) != std::string_view::npos;
  return from ? part.ends_with(pattern) : to ? part.starts_with(pattern) : part == pattern;
}

/// Reports whether the parts of a pattern match as many parts of a name.
bool parts_match(std::string_view pattern, Parts parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = pattern.find('.');
    if (!part_matches(pattern.substr(0, dot), parts[i])) return false;
    pattern.remove_prefix(std::min(dot, pattern.size() - 1) + 1);
  }
  return true;
}

bool matches(std::string_view pattern, Where where, Parts parts) {
  if (where == Where::last || where == Where::whole) {
    const std::size_t n = static_cast<std::size_t>(std::ranges::count(pattern, '.')) + 1;
    return (where == Where::last ? n <= parts.size() : n == parts.size()) &&
           parts_match(pattern, parts.last(n));
  }
  if (where == Where::first) parts = parts.first(1);
  if (where == Where::last3) parts = parts.last(std::min<std::size_t>(3, parts.size()));
  return std::ranges::any_of(parts, [&](std::string_view p) { return part_matches(pattern, p); });
}

}  // namespace

bool matches_one(std::string_view patterns, Where where, Parts parts) {
  while (!patterns.empty()) {
    const std::size_t space = std::min(patterns.find(' '), patterns.size());
    if (matches(patterns.substr(0, space), where, parts)) return true;
    patterns.remove_prefix(std::min(space + 1, patterns.size()));
  }
  return false;
}

bool is_model_type(std::string_view patterns, std::string_view model_type) {
  return matches_one(patterns, Where::whole, Parts(&model_type, 1));
}

}  // namespace nvfp4::checkpoint
