#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nvfp4::platform {

/// Converts text. Invalid UTF-8, or half of a pair of UTF-16, becomes U+FFFD.
std::wstring wide(std::string_view utf8);
std::string narrow(std::wstring_view utf16);

/// Returns a path as the system requires it. A path of more than about 250 characters is made
/// absolute and gets the prefix \\?\ of long paths.
std::wstring native(const std::filesystem::path& path);

/// Sets errno for GetLastError(). Returns -1.
int fail();

}  // namespace nvfp4::platform
