#include "checkpoint/match/glob_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "checkpoint/match/beginnings.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::string_view kWild = "*?";
/// Limit of texts. No real name reaches it. A longer text is tried with all globs.
constexpr std::size_t kMostIndexedBytes = 1024;
constexpr std::size_t kComparedInAStep = 16;

template <class Take>
void for_each_literal(std::string_view glob, Take take) {
  for (std::size_t begin = 0; begin < glob.size();) {
    const std::size_t end = std::min(glob.find_first_of(kWild, begin), glob.size());
    if (end > begin) take(glob.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

GlobIndex::GlobIndex(std::span<const std::string_view> globs) : count_(globs.size()) {
  if (!globs.empty())
    called_ = globs.size() == 1
                  ? std::string(globs[0])
                  : fmt::format("{} or one of {} globs after it", globs[0], globs.size() - 1);
  std::unordered_map<std::string_view, std::size_t> count;
  for (const std::string_view glob : globs)
    for_each_literal(glob, [&](std::string_view part) { ++count[part]; });
  for (std::size_t i = 0; i < globs.size(); ++i) {
    std::string_view rarest;
    for_each_literal(globs[i], [&](std::string_view part) {
      if (rarest.empty() || count[part] < count[rarest] ||
          (count[part] == count[rarest] && part.size() > rarest.size()))
        rarest = part;
    });
    longest_ = std::max(longest_, rarest.size());
    (rarest.empty() ? others_ : by_part_[std::string(rarest)]).push_back(i);
  }
}

std::vector<std::size_t> GlobIndex::candidates(std::string_view text, MatchBudget& budget) const {
  if (by_part_.empty()) return others_;
  if (text.size() > kMostIndexedBytes) {
    std::vector<std::size_t> all(count_);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  std::vector<std::size_t> found = others_;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::size_t steps = 1 + longest_ / kComparedInAStep;
    for_each_beginning(by_part_, text.substr(at), [&](const auto& part) {
      steps += 1 + part.second.size() + longest_ / kComparedInAStep;
      found.insert(found.end(), part.second.begin(), part.second.end());
    });
    budget.spend(static_cast<std::int64_t>(steps), called_);
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

}  // namespace nvfp4::checkpoint
