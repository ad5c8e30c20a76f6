#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// A regular expression in Perl's syntax (PCRE2), which Python's `re` is near to. It may come from
/// a hostile file: what a match costs is bounded.
class Expression {
 public:
  /// What it must match of a name.
  enum class Extent { whole, start };

  /// Throws ValueError that quotes an invalid expression, and says what is wrong with it and where.
  explicit Expression(std::string text, Extent extent = Extent::whole);

  /// Throws ValueError that quotes expression and name if that takes too long.
  bool matches(std::string_view name) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace nvfp4::checkpoint
