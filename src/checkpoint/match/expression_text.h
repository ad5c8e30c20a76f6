#pragma once

#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// Throws ValueError that quotes an invalid expression, with the error and its place.
void check_expression(const std::string& text);

/// Reports whether all characters are printable ASCII. For others, libraries differ in classes and
/// ends of lines.
bool is_plain_text(std::string_view text);

/// Reports whether both libraries interpret the expression alike. RE2 has no backreferences, and
/// takes \x{...} for one character.
bool means_the_same(std::string_view text);

}  // namespace nvfp4::checkpoint
