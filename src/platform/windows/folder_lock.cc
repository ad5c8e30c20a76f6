#include "platform/windows/folder_lock.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "platform/files.h"
#include "platform/windows/system.h"
#include "platform/windows/text.h"

// Windows can lock bytes of files, but not folders. A lock here is a system object whose name has
// the folder's number. It exists while a process has it open. One object means that a process has
// the folder alone, the other that some processes share it.

namespace nvfp4::platform {
namespace {

struct Locks {
  std::mutex mutex;
  std::map<int, HANDLE> of;
};

Locks& locks() {
  static Locks all;
  return all;
}

std::wstring object_of(const FileStatus& folder, bool shared) {
  return wide(fmt::format("Global\\nvfp4-folder-{:x}-{:x}-{}", folder.volume, folder.number,
                          shared ? "shared" : "alone"));
}

bool is_there(const std::wstring& object) {
  const HANDLE opened = ::OpenEventW(SYNCHRONIZE, FALSE, object.c_str());
  if (opened == nullptr)
    return ::GetLastError() == ERROR_ACCESS_DENIED;  // the object of another user
  ::CloseHandle(opened);
  return true;
}

}  // namespace

bool lock_folder(int fd, bool shared) {
  const auto folder = status_of(fd);
  if (!folder) return false;
  const HANDLE mine = ::CreateEventW(nullptr, TRUE, FALSE, object_of(*folder, shared).c_str());
  const DWORD error = ::GetLastError();
  if (mine == nullptr && error != ERROR_ACCESS_DENIED) return fail() == 0;
  const bool taken = mine == nullptr || (!shared && error == ERROR_ALREADY_EXISTS);
  // This process has its object already, so at least one of two concurrent processes finds the
  // other.
  if (taken || is_there(object_of(*folder, !shared))) {
    if (mine != nullptr) ::CloseHandle(mine);
    errno = EWOULDBLOCK;
    return false;
  }
  const std::lock_guard guard(locks().mutex);
  locks().of[fd] = mine;
  return true;
}

void unlock_folder(int fd) {
  const std::lock_guard guard(locks().mutex);
  const auto mine = locks().of.find(fd);
  if (mine == locks().of.end()) return;
  ::CloseHandle(mine->second);
  locks().of.erase(mine);
}

}  // namespace nvfp4::platform
