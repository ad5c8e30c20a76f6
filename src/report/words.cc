#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/printable.h"
#include "report/parts.h"
#include "report/report.h"

namespace nvfp4::report {

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  const char* units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit < 5; ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

std::string human_count(double count) {
  if (count < 1000) return fmt::format("{:.0f}", count);
  const char* units[] = {"K", "M", "B", "T"};
  std::size_t unit = 0;
  for (count /= 1000; count >= 999.5 && unit < 3; ++unit) count /= 1000;
  return fmt::format("{:.{}f} {}", count, count < 9.995 ? 2 : count < 99.95 ? 1 : 0, units[unit]);
}

std::string human_clock(double seconds) {
  const auto s = static_cast<std::int64_t>(std::clamp(std::ceil(seconds), 0.0, 359999.0));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string human_duration(double seconds) {
  if (seconds < 99.95) return fmt::format("{:.{}f} s", seconds, seconds < 9.995 ? 2 : 1);
  return human_clock(seconds) + (seconds < 3600 ? " min" : " h");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

std::string form_of(const InspectedTensor& t) {
  std::string form = t.scheme.empty() ? t.dtype : t.scheme;
  std::ranges::transform(form, form.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return form;
}

std::string number(double x, const char* format) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return fmt::format(fmt::runtime(format), x);
}

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
