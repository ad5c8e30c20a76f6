#include "report/escape.h"

#include "core/printable.h"

namespace nvfp4::report {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : printable(text, text.size())) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string name(std::string_view text) {
  std::string out = "<bdi>";
  for (const char c : escape(text)) {
    out += c;
    if (c == '.' || c == '/') out += "<wbr>";
  }
  return out + "</bdi>";
}

}  // namespace nvfp4::report
