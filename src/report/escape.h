#pragma once

#include <string>
#include <string_view>

namespace nvfp4::report {

/// Escapes text of a file for a page, in elements and quoted attributes. The result contains no
/// tags, entities, control characters or invalid UTF-8 of the file.
std::string escape(std::string_view text);

/// Escapes a name of a file. It is isolated, so that right-to-left characters do not move the text
/// around it. Lines can break after dots and slashes.
std::string name(std::string_view text);

}  // namespace nvfp4::report
