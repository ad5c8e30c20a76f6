#pragma once

#include <fmt/format.h>

#include <utility>

#include "nvfp4/error.h"

namespace nvfp4 {

/// Throws E with a formatted message unless `ok`. The message names argument, value and rule:
/// require<ShapeError>(k % 16 == 0, "quantize: K = {}, must be a multiple of 16", k);
template <class E, class... Args>
void require(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw E(fmt::format(message, std::forward<Args>(args)...));
}

/// Throws E with a specific code instead of the code of its type.
template <class E, class... Args>
void require(bool ok, ErrorCode code, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw E(fmt::format(message, std::forward<Args>(args)...), code);
}

}  // namespace nvfp4
