#include <dirent.h>

#include <cerrno>
#include <cstdint>
#include <cwchar>
#include <new>
#include <utility>

#include "platform/windows/system.h"
#include "platform/windows/text.h"

// Replacements of C library functions that libstdc++ calls. They are in one file with fail(), which
// the whole folder uses; otherwise the linker would leave them in an archive.

namespace nvfp4::platform {
namespace {

constexpr DWORD kDiskQuotaExceeded = 1295;  // missing in mingw's headers

int errno_of(DWORD error) {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_DRIVE:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_PATHNAME:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME:
      return ENOENT;
    case ERROR_TOO_MANY_OPEN_FILES:
      return EMFILE;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_PRIVILEGE_NOT_HELD:
    case ERROR_USER_MAPPED_FILE:
    case ERROR_DELETE_PENDING:
      return EACCES;
    case ERROR_WRITE_PROTECT:
      return EROFS;
    case ERROR_LOCK_VIOLATION:
      return EWOULDBLOCK;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT:
      return ENOMEM;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
    case kDiskQuotaExceeded:
      return ENOSPC;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return EEXIST;
    case ERROR_DIR_NOT_EMPTY:
      return ENOTEMPTY;
    case ERROR_DIRECTORY:
      return ENOTDIR;
    case ERROR_INVALID_HANDLE:
      return EBADF;
    case ERROR_FILENAME_EXCED_RANGE:
      return ENAMETOOLONG;
    case ERROR_NOT_SAME_DEVICE:
      return EXDEV;
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA:
      return EPIPE;
    case ERROR_INVALID_PARAMETER:
      return EINVAL;
    case ERROR_NOT_SUPPORTED:
    case ERROR_INVALID_FUNCTION:
    case ERROR_CALL_NOT_IMPLEMENTED:
      return ENOTSUP;
    case ERROR_FILE_TOO_LARGE:
      return EFBIG;
    default:
      return EIO;
  }
}

}  // namespace

int fail() {
  errno = errno_of(::GetLastError());
  return -1;
}

}  // namespace nvfp4::platform

/// Replaces the C library's mbrtowc(), which decodes a code page of the system, and none of those
/// is UTF-8. libstdc++ makes paths of narrow text through it, one unit of UTF-16 per call. For a
/// character with two units, three of its bytes give the first unit and the fourth byte gives the
/// second.
extern "C" std::size_t mbrtowc(wchar_t* out, const char* in, std::size_t size,
                               std::mbstate_t* state) {
  constexpr std::size_t kWrong = static_cast<std::size_t>(-1), kCut = static_cast<std::size_t>(-2);
  static thread_local std::mbstate_t own{};
  std::mbstate_t& second = state == nullptr ? own : *state;
  if (in == nullptr) {
    second = 0;
    return 0;
  }
  if (size == 0) return kCut;
  const auto put = [out](std::uint32_t unit) {
    if (out != nullptr) *out = static_cast<wchar_t>(unit);
  };
  if (second != 0) {
    put(static_cast<std::uint32_t>(second));
    second = 0;
    return 1;
  }
  const auto byte = [in](std::size_t i) { return static_cast<unsigned char>(in[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) {
    put(first);
    return first == 0 ? 0 : 1;
  }
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  std::uint32_t code = first & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length && i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return errno = EILSEQ, kWrong;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xC2 || first > 0xF4) return errno = EILSEQ, kWrong;
  if (size < length) return kCut;
  if (code < kLowest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    return errno = EILSEQ, kWrong;
  if (length < 4) {
    put(code);
    return length;
  }
  put(0xD800 + ((code - 0x10000) >> 10));
  second = static_cast<std::mbstate_t>(0xDC00 + ((code - 0x10000) & 0x3FF));
  return 3;
}

// Replacements for mingw's folder functions, which std::filesystem::directory_iterator calls.
// mingw's version keeps a folder's path in MAX_PATH characters regardless of its length. _WDIR of
// that header ends in an array of any size, so the pointer can lead to an object of ours.

namespace {

struct Entries {
  HANDLE find = INVALID_HANDLE_VALUE;
  WIN32_FIND_DATAW next{};
  bool has_next = false;
  int error = 0;  ///< reason why there is no next entry
  _wdirent entry{};
};

Entries& entries_of(_WDIR* folder) { return *reinterpret_cast<Entries*>(folder); }

}  // namespace

extern "C" _WDIR* _wopendir(const wchar_t* path) {
  const std::wstring folder = nvfp4::platform::native(path);
  const DWORD attributes = ::GetFileAttributesW(folder.c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) {
    nvfp4::platform::fail();
    return nullptr;
  }
  if ((attributes & FILE_ATTRIBUTE_DIRECTORY) == 0) {
    errno = ENOTDIR;
    return nullptr;
  }
  auto* entries = new (std::nothrow) Entries;
  if (entries == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const bool closed = folder.ends_with(L'\\') || folder.ends_with(L'/');
  entries->find = ::FindFirstFileW((folder + (closed ? L"*" : L"\\*")).c_str(), &entries->next);
  entries->has_next = entries->find != INVALID_HANDLE_VALUE;
  // The root of a drive may be empty: it does not even have "." and "..".
  if (!entries->has_next && ::GetLastError() != ERROR_FILE_NOT_FOUND) {
    nvfp4::platform::fail();
    delete entries;
    return nullptr;
  }
  return reinterpret_cast<_WDIR*>(entries);
}

extern "C" _wdirent* _wreaddir(_WDIR* folder) {
  Entries& entries = entries_of(folder);
  if (!entries.has_next) {
    if (entries.error != 0) errno = entries.error;
    return nullptr;
  }
  std::wcsncpy(entries.entry.d_name, entries.next.cFileName, FILENAME_MAX - 1);
  entries.entry.d_namlen = static_cast<unsigned short>(std::wcslen(entries.entry.d_name));
  entries.has_next = ::FindNextFileW(entries.find, &entries.next) != 0;
  if (!entries.has_next && ::GetLastError() != ERROR_NO_MORE_FILES) {
    const int before = errno;
    nvfp4::platform::fail();
    entries.error = std::exchange(errno, before);
  }
  return &entries.entry;
}

extern "C" int _wclosedir(_WDIR* folder) {
  Entries* const entries = &entries_of(folder);
  if (entries->find != INVALID_HANDLE_VALUE) ::FindClose(entries->find);
  delete entries;
  return 0;
}
