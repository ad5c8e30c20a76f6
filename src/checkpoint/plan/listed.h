#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/printable.h"

namespace nvfp4::checkpoint {

/// The modules that a warning is about: their number, and the first of them.
struct Listed {
  std::size_t count = 0;
  std::string first;

  void add(std::string_view module, std::size_t modules = 1) {
    if (count == 0) first = module;
    count += modules;
  }
  std::string text() const { return printable(first) + (count > 1 ? ", ..." : ""); }
};

}  // namespace nvfp4::checkpoint
