#include "checkpoint/verify/exclusions.h"

#include <algorithm>

namespace nvfp4::checkpoint {

Exclusions::Exclusions(const Declared& declared)
    : entries_(declared.ignore), list_(entries_, declared.file, declared.budget) {
  if (declared.is_compressed_tensors()) return;
  std::vector<std::string_view> sorted(entries_.begin(), entries_.end());
  std::erase_if(sorted, [](std::string_view entry) { return entry.starts_with("re:"); });
  std::ranges::sort(sorted);
  for (const std::string_view entry : sorted)
    if (pieces_.empty() || !entry.starts_with(pieces_.back())) pieces_.push_back(entry);
}

Exclusions::Found Exclusions::find(std::string_view module) const {
  if (const auto first = list_.first(module)) return {Match::whole, entries_[*first]};
  // No entry starts with another. So only the last entry that sorts at or before the text can be
  // its start.
  for (std::size_t at = 0; at < module.size() && !pieces_.empty(); ++at) {
    const std::string_view rest = module.substr(at);
    const auto after = std::ranges::upper_bound(pieces_, rest);
    if (after != pieces_.begin() && rest.starts_with(*std::prev(after)))
      return {Match::substring, *std::prev(after)};
  }
  return {};
}

}  // namespace nvfp4::checkpoint
