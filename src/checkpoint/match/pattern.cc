#include "checkpoint/match/pattern.h"

#include <algorithm>
#include <limits>

#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::checkpoint {

std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  return tensor.ends_with(kSuffix) ? tensor.substr(0, tensor.size() - kSuffix.size()) : tensor;
}

std::vector<std::string_view> split_name(std::string_view name, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = name.find(separator, begin);
    parts.push_back(name.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}
namespace {

constexpr std::string_view kRegex = "re:";

PatternKind kind_of(const std::string& text) {
  require<ValueError>(!text.empty(), ErrorCode::pattern,
                      "pattern: empty, must be a name, a glob or re:EXPRESSION");
  return text.starts_with(kRegex)                        ? PatternKind::regex
         : text.find_first_of("*?") != std::string::npos ? PatternKind::glob
                                                         : PatternKind::exact;
}

constexpr std::string_view kModel = "model.", kExpression = "re:";

/// Limit of names. No real model reaches it, and some expressions take quadratic time.
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();

}  // namespace

Pattern::Pattern(std::string text, SharedBudget budget)
    : text_(std::move(text)), kind_(kind_of(text_)), budget_(std::move(budget)) {
  if (kind_ == PatternKind::regex)
    expression_.emplace(text_.substr(kRegex.size()), Expression::Extent::whole, budget_);
  if (kind_ == PatternKind::glob) glob_.emplace(text_);
}

bool Pattern::matches_whole(std::string_view name) const {
  if (glob_) return glob_->matches(name, *budget_);
  return expression_ ? expression_->matches(name) : name == text_;
}

bool Pattern::matches(std::string_view tensor) const {
  const std::string_view module = module_of(tensor);
  return matches_whole(tensor) || (module.size() != tensor.size() && matches_whole(module));
}

PatternList::PatternList(std::vector<std::string> texts, SharedBudget budget)
    : budget_(std::move(budget)), texts_(std::move(texts)) {
  std::vector<std::string_view> globs, expressions;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const std::string_view text = texts_[i];
    switch (kind_of(texts_[i])) {
      case PatternKind::exact:
        names_[texts_[i]].push_back(i);
        break;
      case PatternKind::glob:
        globs_.emplace_back(texts_[i]);
        globs.push_back(text);
        glob_places_.push_back(i);
        break;
      case PatternKind::regex:
        expressions.push_back(text.substr(kRegex.size()));
        expression_places_.push_back(i);
        break;
    }
  }
  index_ = GlobIndex(globs);
  expressions_ =
      std::make_shared<const ExpressionSet>(expressions, Expression::Extent::whole, budget_);
}

std::vector<std::size_t> PatternList::matching(std::string_view tensor) const {
  std::vector<std::size_t> found, expressions;
  const std::string_view module = module_of(tensor);
  const bool two = module.size() != tensor.size();
  for (const std::string_view name : {tensor, module}) {
    if (const auto it = names_.find(std::string(name)); it != names_.end())
      found.insert(found.end(), it->second.begin(), it->second.end());
    expressions_->find_all(name, expressions);
    if (!two) break;
  }
  for (const std::size_t e : expressions) found.push_back(expression_places_[e]);
  for (const std::size_t g : index_.candidates(tensor, *budget_)) {
    ++calls_;
    if (globs_[g].matches(tensor, *budget_) || (two && globs_[g].matches(module, *budget_)))
      found.push_back(glob_places_[g]);
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

std::string template_of(std::string_view module) {
  std::string kind;
  for (const std::string_view part : split_name(module))
    kind.append(kind.empty() ? "" : ".").append(is_number(part) ? "*" : part);
  return kind;
}

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

void nvfp4::check_pattern(const std::string& pattern) { checkpoint::Pattern{pattern}; }
