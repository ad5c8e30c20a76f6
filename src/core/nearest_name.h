#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4 {

/// Returns the index of the name that a misspelled word probably means, or the number of names if
/// none is near. The start of a name, of at least three letters, is near however long the rest is.
std::size_t nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace nvfp4
