#include "checkpoint/match/entry_list.h"

#include <algorithm>

#include "checkpoint/match/beginnings.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::string_view kModel = "model.", kExpression = "re:";

/// No real model comes near, and some expressions take the time of a name's square.
constexpr std::size_t kMaxNameBytes = 1024;

}  // namespace

EntryList::EntryList(const std::vector<std::string>& entries, std::string file,
                     const SharedBudget& budget)
    : file_(std::move(file)), budget_(budget) {
  std::vector<std::string_view> expressions;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries[i];
    if (entry.starts_with(kExpression)) {
      expressions.push_back(entry.substr(kExpression.size()));
      expression_entries_.push_back(i);
    } else {
      add(entry, i);
    }
  }
  try {
    expressions_.emplace(expressions, budget_);
  } catch (const ValueError& e) {
    throw FormatError(fmt::format("{}: {}", file_, e.what()));
  }
}

/// What begins with a star matches the prefix, too.
void EntryList::add(std::string_view entry, std::size_t i) {
  const bool has_prefix = entry.starts_with(kModel);
  const std::string_view rest = has_prefix ? entry.substr(kModel.size()) : std::string_view();
  const std::size_t wild = entry.find_first_of("*?");
  if (wild == entry.npos) {
    names_.try_emplace(entry, i);
    if (has_prefix) names_.try_emplace(rest, i);
    return;
  }
  auto& globs = globs_[i];
  globs.emplace_back(std::string(entry));
  if (has_prefix) globs.emplace_back(std::string(rest));
  const std::string_view start = entry.substr(0, wild);
  if (start.empty()) return loose_.push_back(i);
  starts_[start].push_back(i);
  // Without "model." nothing may be left that is literal.
  if (start == kModel) return loose_.push_back(i);
  if (has_prefix) starts_[start.substr(kModel.size())].push_back(i);
}

/// Globs that a module, or what is left of it behind a dot, begins with what is literal of them.
std::vector<std::size_t> EntryList::candidates(std::string_view module) const {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; !starts_.empty(); ++at) {
    for_each_beginning(starts_, module.substr(at), [&](const auto& start) {
      out.insert(out.end(), start.second.begin(), start.second.end());
    });
    at = module.find('.', at);
    if (at == std::string_view::npos) break;
  }
  std::ranges::sort(out);
  return out;
}

bool EntryList::glob_matches(std::size_t i, std::string_view module) const {
  ++calls_;
  return std::ranges::any_of(globs_.at(i), [&](const Glob& glob) {
    if (glob.starts_with_star()) return glob.matches(module, *budget_);
    const std::string_view start = glob.literal_prefix();
    for (std::size_t at = 0;; ++at) {
      const std::string_view rest = module.substr(at);
      if (rest.starts_with(start) && glob.matches(rest, *budget_)) return true;
      at = module.find('.', at);
      if (at == module.npos) return false;
    }
  });
}

std::optional<std::size_t> EntryList::first_expression(std::string_view module,
                                                       std::size_t end) const {
  if (module.size() > kMaxNameBytes) return std::nullopt;
  const auto last = std::ranges::lower_bound(expression_entries_, end);
  const auto found =
      expressions_->first(module, static_cast<std::size_t>(last - expression_entries_.begin()));
  return found ? std::optional(expression_entries_[*found]) : std::nullopt;
}

bool EntryList::has_expression_for(std::string_view module) const try {
  return first_expression(module, globs_.max_size()).has_value();
} catch (const ValueError& e) {
  throw FormatError(fmt::format("{}: {}", file_, e.what()));
}

std::optional<std::size_t> EntryList::first(std::string_view module) const try {
  std::optional<std::size_t> found;
  for (std::size_t at = 0;; ++at) {
    ++calls_;
    if (const auto name = names_.find(module.substr(at)); name != names_.end())
      found = std::min(found.value_or(name->second), name->second);
    at = module.find('.', at);
    if (at == std::string_view::npos) break;
  }
  const auto look_in = [&](const std::vector<std::size_t>& globs) {
    for (const std::size_t i : globs) {
      if (found && *found <= i) break;
      if (glob_matches(i, module)) found = i;
    }
  };
  look_in(candidates(module));
  look_in(loose_);
  const auto expression = first_expression(module, found.value_or(globs_.max_size()));
  return expression ? expression : found;
} catch (const ValueError& e) {
  throw FormatError(fmt::format("{}: {}", file_, e.what()));
}

}  // namespace nvfp4::checkpoint
