#include "checkpoint/formats/exclusions.h"

#include <algorithm>
#include <optional>

namespace nvfp4::checkpoint {
namespace {

constexpr std::string_view kModel = "model.";

bool is_expression(std::string_view entry) { return entry.starts_with("re:"); }

bool is_name(std::string_view entry) {
  return !is_expression(entry) && entry.find_first_of("*?") == std::string_view::npos;
}

}  // namespace

Exclusions::Exclusions(const Declared& declared) : declared_(declared), entries_(declared.ignore) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view entry = entries_[i];
    if (!is_name(entry)) {
      add_pattern(entry, i);
      continue;
    }
    names_.try_emplace(entry, i);
    if (entry.starts_with(kModel)) names_.try_emplace(entry.substr(kModel.size()), i);
  }
  if (declared.is_compressed_tensors()) return;
  std::vector<std::string_view> sorted(entries_.begin(), entries_.end());
  std::erase_if(sorted, is_expression);
  std::ranges::sort(sorted);
  for (const std::string_view entry : sorted)
    if (pieces_.empty() || !entry.starts_with(pieces_.back())) pieces_.push_back(entry);
}

void Exclusions::add_pattern(std::string_view entry, std::size_t i) {
  const std::string_view start = entry.substr(0, entry.find_first_of("*?"));
  if (is_expression(entry) || start.empty()) return patterns_.push_back(i);
  globs_[start].push_back(i);
  // Without "model." nothing may be left that is literal.
  if (start == kModel) return patterns_.push_back(i);
  if (start.starts_with(kModel)) globs_[start.substr(kModel.size())].push_back(i);
}

/// Globs that a module, or what is left of it behind a dot, begins with what is literal of them.
std::vector<std::size_t> Exclusions::candidates(std::string_view module) const {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; !globs_.empty(); ++at) {
    const std::string_view rest = module.substr(at);
    // What is not after `rest` and a beginning of it: each step goes to a shorter one.
    for (auto it = globs_.upper_bound(rest); it != globs_.begin();) {
      const std::string_view start = std::prev(it)->first;
      const std::size_t common =
          static_cast<std::size_t>(std::ranges::mismatch(start, rest).in1 - start.begin());
      if (common == start.size()) {
        out.insert(out.end(), std::prev(it)->second.begin(), std::prev(it)->second.end());
        --it;
      } else if (common == 0) {
        break;
      } else {
        it = globs_.upper_bound(rest.substr(0, common));
      }
    }
    at = module.find('.', at);
    if (at == std::string_view::npos) break;
  }
  std::ranges::sort(out);
  return out;
}

Exclusions::Found Exclusions::find(std::string_view module) const {
  std::optional<std::size_t> first;
  // Writers leave prefixes out.
  for (std::size_t at = 0;; ++at) {
    if (const auto name = names_.find(module.substr(at)); name != names_.end())
      first = std::min(first.value_or(name->second), name->second);
    at = module.find('.', at);
    if (at == std::string_view::npos) break;
  }
  const auto look_in = [&](const std::vector<std::size_t>& patterns) {
    for (const std::size_t i : patterns) {
      if (first && *first <= i) break;
      if (declared_.matches(entries_[i], module)) first = i;
    }
  };
  look_in(candidates(module));
  look_in(patterns_);
  if (first) return {Match::whole, entries_[*first]};
  // Of entries none of which begins with another, only the last that is not after a text can be
  // its beginning.
  for (std::size_t at = 0; at < module.size() && !pieces_.empty(); ++at) {
    const std::string_view rest = module.substr(at);
    const auto after = std::ranges::upper_bound(pieces_, rest);
    if (after != pieces_.begin() && rest.starts_with(*std::prev(after)))
      return {Match::substring, *std::prev(after)};
  }
  return {};
}

}  // namespace nvfp4::checkpoint
