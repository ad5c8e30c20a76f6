#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "nvfp4/error.h"

/// Common functions of the checks of fuzzed parsers.
namespace nvfp4 {

inline void must(bool ok, const char* what) {
  if (ok) return;
  fmt::print(stderr, "broken: {}\n", what);
  std::abort();
}

inline void check_message(const FormatError& error, std::string_view file = "input") {
  const std::string_view message = error.what();
  must(message.starts_with(file), "a message names the file");
  must(message.size() < 2000, "a message is short");
  must(std::none_of(message.begin(), message.end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7F; }),
       "a message is one line");
}

}  // namespace nvfp4
