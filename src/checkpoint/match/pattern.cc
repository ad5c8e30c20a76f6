#include "checkpoint/match/pattern.h"

#include <algorithm>

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

Pattern::Pattern(std::string text, SharedBudget budget)
    : text_(std::move(text)), budget_(std::move(budget)) {
  require<ValueError>(!text_.empty(), ErrorCode::pattern,
                      "pattern: empty, must be a name, a glob or re:EXPRESSION");
  if (text_.starts_with("re:")) {
    kind_ = Kind::regex;
    expression_.emplace(text_.substr(3), Expression::Extent::whole, budget_);
  } else if (text_.find_first_of("*?") != std::string::npos) {
    kind_ = Kind::glob;
    glob_.emplace(text_);
  }
}

bool Pattern::matches_whole(std::string_view name) const {
  switch (kind_) {
    case Kind::exact:
      return name == text_;
    case Kind::glob:
      return glob_->matches(name, *budget_);
    case Kind::regex:
      break;
  }
  return expression_->matches(name);
}

bool Pattern::matches(std::string_view tensor) const {
  const std::string_view module = module_of(tensor);
  return matches_whole(tensor) || (module.size() != tensor.size() && matches_whole(module));
}

PatternList::PatternList(const std::vector<std::string>& texts, SharedBudget budget)
    : budget_(std::move(budget)) {
  patterns_.reserve(texts.size());
  std::vector<std::string_view> globs;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Pattern& pattern = patterns_.emplace_back(texts[i], budget_);
    if (pattern.exact()) {
      names_[texts[i]].push_back(i);
    } else if (pattern.is_glob()) {
      globs_.push_back(i);
      globs.push_back(texts[i]);
    } else {
      expressions_.push_back(i);
    }
  }
  index_ = GlobIndex(globs);
}

std::vector<std::size_t> PatternList::matching(std::string_view tensor) const {
  std::vector<std::size_t> found;
  const std::string_view module = module_of(tensor);
  for (const std::string_view name : {tensor, module}) {
    if (const auto it = names_.find(std::string(name)); it != names_.end())
      found.insert(found.end(), it->second.begin(), it->second.end());
    if (module.size() == tensor.size()) break;
  }
  const auto ask = [&](std::size_t i) {
    ++calls_;
    if (patterns_[i].matches(tensor)) found.push_back(i);
  };
  for (const std::size_t g : index_.candidates(tensor, *budget_)) ask(globs_[g]);
  for (const std::size_t i : expressions_) ask(i);
  std::ranges::sort(found);
  return found;
}

}  // namespace nvfp4::checkpoint

void nvfp4::check_pattern(const std::string& pattern) { checkpoint::Pattern{pattern}; }
