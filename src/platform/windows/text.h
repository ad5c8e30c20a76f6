#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nvfp4::platform {

/// What is no UTF-8, or half of a pair of UTF-16, becomes U+FFFD.
std::wstring wide(std::string_view utf8);
std::string narrow(std::wstring_view utf16);

/// As the system takes it: a path of more than some 250 characters has to be absolute, and to say
/// by its beginning, \\?\, that it is long.
std::wstring native(const std::filesystem::path& path);

/// errno for what GetLastError() says. Returns -1.
int fail();

}  // namespace nvfp4::platform
