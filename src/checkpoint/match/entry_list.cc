#include <algorithm>
#include <limits>

#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::string_view kModel = "model.", kExpression = "re:";

/// Limit of names. No real model reaches it, and some expressions take quadratic time.
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();

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
  std::vector<std::string_view> globs;
  globs.reserve(globs_.size());
  for (const Glob& glob : globs_) globs.push_back(glob.text());
  index_ = GlobIndex(globs);
  try {
    expressions_.emplace(expressions, Expression::Extent::start, budget_);
  } catch (const ValueError& e) {
    throw FormatError(fmt::format("{}: {}", file_, e.what()));
  }
}

/// Adds an entry, also without "model.".
void EntryList::add(std::string_view entry, std::size_t i) {
  add_text(entry, i);
  if (entry.starts_with(kModel)) add_text(entry.substr(kModel.size()), i);
}

void EntryList::add_text(std::string_view text, std::size_t i) {
  if (text.find_first_of("*?") == text.npos) {
    names_.try_emplace(text, i);
  } else {
    globs_.emplace_back(std::string(text));
    glob_entries_.push_back(i);
  }
}

/// Reports whether a glob matches the module. A glob that starts with a star also covers all text
/// before a dot.
bool EntryList::matches(const Glob& glob, std::string_view module) const {
  ++calls_;
  if (glob.starts_with_star()) return glob.matches(module, *budget_);
  const std::string_view start = glob.literal_prefix();
  for (std::size_t at = 0;; ++at) {
    const std::string_view rest = module.substr(at);
    if (rest.starts_with(start) && glob.matches(rest, *budget_)) return true;
    at = module.find('.', at);
    if (at == module.npos) return false;
  }
}

std::optional<std::size_t> EntryList::first_expression(std::string_view module,
                                                       std::size_t end) const {
  if (module.size() > kMaxNameBytes) return std::nullopt;
  const auto last = std::ranges::lower_bound(expression_entries_, end);
  const auto found =
      expressions_->first(module, static_cast<std::size_t>(last - expression_entries_.begin()));
  return found ? std::optional(expression_entries_[*found]) : std::nullopt;
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
  for (const std::size_t g : index_.candidates(module, *budget_)) {
    if (found && *found <= glob_entries_[g]) break;
    if (matches(globs_[g], module)) found = glob_entries_[g];
  }
  const auto expression = first_expression(module, found.value_or(kNoEnd));
  return expression ? expression : found;
} catch (const ValueError& e) {
  throw FormatError(fmt::format("{}: {}", file_, e.what()));
}

}  // namespace nvfp4::checkpoint
