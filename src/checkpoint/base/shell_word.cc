#include "checkpoint/base/shell_word.h"

#include <fmt/format.h>

#include "core/printable.h"

namespace nvfp4 {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kBare =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./_-";
  if (!text.empty() && text.find_first_not_of(kBare) == text.npos) return std::string(text);
  const bool plain = printable(text, text.size()) == text;
  std::string out = plain ? "'" : "$'";
  for (const char c : text) {
    if (!plain && (c < ' ' || c > '~'))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else if (c == '\'')
      out += plain ? "'\\''" : "\\'";
    else if (c == '\\' && !plain)
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

}  // namespace nvfp4
