#include "checkpoint/match/glob.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Bytes that count as one step. memmem() takes linear time for all texts.
constexpr std::size_t kBytesOfAStep = 16;

std::size_t find_plain(std::string_view text, std::string_view what) {
#ifdef __linux__
  const void* const at = ::memmem(text.data(), text.size(), what.data(), what.size());
  return at == nullptr ? text.npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
#else
  return text.find(what);
#endif
}

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

Glob::Glob(std::string text) : text_(std::move(text)) {
  for (std::size_t begin = 0;;) {
    const std::size_t star = std::min(text_.find('*', begin), text_.size());
    const std::string_view run = std::string_view(text_).substr(begin, star - begin);
    const bool between = !runs_.empty() && star < text_.size();
    if (!run.empty() || !between)  // `**` equals `*`
      runs_.push_back({begin, run.size(), run.find('?') == run.npos});
    if (star == text_.size()) return;
    begin = star + 1;
  }
}

std::string_view Glob::literal_prefix() const {
  return std::string_view(text_).substr(0, text_.find_first_of("*?"));
}

bool Glob::matches_at(const Run& run, std::string_view name, std::size_t at) const {
  const std::string_view text = text_of(run);
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '?' && text[i] != name[at + i]) return false;
  return true;
}

std::size_t Glob::find(const Run& run, std::string_view name, std::size_t from,
                       MatchBudget& budget) const {
  if (run.plain) {
    const std::size_t at = find_plain(name.substr(from), text_of(run));
    return at == name.npos ? at : from + at;
  }
  for (std::size_t at = from; at + run.size <= name.size(); ++at) {
    budget.spend(static_cast<std::int64_t>(1 + run.size / kBytesOfAStep), text_);
    if (matches_at(run, name, at)) return at;
  }
  return name.npos;
}

bool Glob::matches(std::string_view name, MatchBudget& budget) const {
  budget.spend(static_cast<std::int64_t>(1 + name.size() / kBytesOfAStep), text_);
  const Run& first = runs_.front();
  if (runs_.size() == 1) return name.size() == first.size && matches_at(first, name, 0);
  const Run& last = runs_.back();
  if (name.size() < first.size + last.size || !matches_at(first, name, 0) ||
      !matches_at(last, name, name.size() - last.size))
    return false;
  const std::string_view middle = name.substr(0, name.size() - last.size);
  std::size_t at = first.size;
  for (std::size_t r = 1; r + 1 < runs_.size(); ++r) {
    at = find(runs_[r], middle, at, budget);
    if (at == middle.npos) return false;
    at += runs_[r].size;
  }
  return true;
}

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
