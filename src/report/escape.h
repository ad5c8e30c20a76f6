#pragma once

#include <string>
#include <string_view>

namespace nvfp4::report {

/// Text from a file as text of a page, in elements and in quoted attributes: no tag, no entity, no
/// control character and no broken UTF-8 of its own comes through.
std::string escape(std::string_view text);

/// A name from a file, isolated so that right-to-left characters in it move nothing around it, with
/// places to break a line after dots and slashes.
std::string name(std::string_view text);

}  // namespace nvfp4::report
