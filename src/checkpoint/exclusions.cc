#include "checkpoint/exclusions.h"

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
      patterns_.push_back(i);
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

Exclusions::Found Exclusions::find(std::string_view module) const {
  std::optional<std::size_t> first;
  // Writers leave prefixes out.
  for (std::size_t at = 0;; ++at) {
    if (const auto name = names_.find(module.substr(at)); name != names_.end())
      first = std::min(first.value_or(name->second), name->second);
    at = module.find('.', at);
    if (at == std::string_view::npos) break;
  }
  const std::string text(module);
  for (const std::size_t i : patterns_) {
    if (first && *first < i) break;
    if (declared_.matches(entries_[i], text)) first = i;
  }
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
