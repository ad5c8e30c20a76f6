#include "platform/windows/text.h"

#include "platform/windows/system.h"

namespace nvfp4::platform {
namespace {

/// The largest length of a path without the prefix. An 8.3 name and additions of the system must
/// fit on top.
constexpr std::size_t kShort = 240;

}  // namespace

std::wstring wide(std::string_view utf8) {
  const auto size = static_cast<int>(utf8.size());
  std::wstring out(
      static_cast<std::size_t>(::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), size, nullptr, 0)),
      L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), size, out.data(), static_cast<int>(out.size()));
  return out;
}

std::string narrow(std::wstring_view utf16) {
  const auto size = static_cast<int>(utf16.size());
  std::string out(static_cast<std::size_t>(::WideCharToMultiByte(CP_UTF8, 0, utf16.data(), size,
                                                                 nullptr, 0, nullptr, nullptr)),
                  '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, utf16.data(), size, out.data(), static_cast<int>(out.size()),
                        nullptr, nullptr);
  return out;
}

std::wstring native(const std::filesystem::path& path) {
  std::wstring text = path.native();
  // A relative path grows by the current folder.
  if (text.empty() || text.starts_with(L"\\\\?\\")) return text;
  std::wstring whole(text.size() + MAX_PATH, L'\0');
  for (;;) {
    const DWORD size =
        ::GetFullPathNameW(text.c_str(), static_cast<DWORD>(whole.size()), whole.data(), nullptr);
    if (size == 0) return text;
    const bool fits = size < whole.size();
    whole.resize(size);
    if (fits) break;
  }
  if (whole.size() < kShort || whole.starts_with(L"\\\\.\\")) return text;
  if (whole.starts_with(L"\\\\")) return L"\\\\?\\UNC" + whole.substr(1);
  return L"\\\\?\\" + whole;
}

}  // namespace nvfp4::platform
