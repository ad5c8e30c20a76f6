#include "core/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace nvfp4 {
namespace {

bool is_harmless(char32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  const bool marks_direction = code == 0x61C || (code >= 0x200B && code <= 0x200F) ||
                               (code >= 0x202A && code <= 0x202E) ||
                               (code >= 0x2060 && code <= 0x206F);
  const bool separates_lines = code == 0x2028 || code == 0x2029;
  const bool invisible = code == 0xFEFF || (code >= 0xE0000 && code <= 0xE007F);
  return !marks_direction && !separates_lines && !invisible;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7F >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  std::size_t done = 0;
  while (done < text.size()) {
    const Character character = first_character(text.substr(done));
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (done + bytes > max_bytes) break;
    const bool keep = character.bytes != 0 && is_harmless(character.code);
    for (std::size_t i = done; i < done + bytes; ++i) {
      if (keep)
        out += text[i];
      else
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<std::uint8_t>(text[i]));
    }
    done += bytes;
  }
  if (done < text.size())
    fmt::format_to(std::back_inserter(out), "... ({} more bytes)", text.size() - done);
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace nvfp4
