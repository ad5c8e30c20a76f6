#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"

namespace nvfp4::checkpoint {

/// The module of a tensor: its name less ".weight".
std::string_view module_of(std::string_view tensor);

/// The parts of a dotted name.
std::vector<std::string_view> split_name(std::string_view name, char separator = '.');

/// An exact name, a glob (`*` any run, `?` any one character, dots too), or "re:" and a regular
/// expression in Perl's syntax. It must match the whole tensor name or the whole module name.
class Pattern {
 public:
  /// Throws ValueError that quotes an empty pattern or an invalid expression.
  explicit Pattern(std::string text, SharedBudget budget = std::make_shared<MatchBudget>());

  /// Throws ValueError if it takes too long.
  bool matches(std::string_view tensor) const;
  bool exact() const { return kind_ == Kind::exact; }
  const std::string& text() const { return text_; }

 private:
  enum class Kind { exact, glob, regex };
  bool matches_whole(std::string_view name) const;

  std::string text_;
  Kind kind_ = Kind::exact;
  SharedBudget budget_;
  std::optional<Expression> expression_;
  std::optional<Glob> glob_;
};

/// They share one budget.
std::vector<Pattern> make_patterns(const std::vector<std::string>& texts,
                                   const SharedBudget& budget);

}  // namespace nvfp4::checkpoint
