#include "platform/files.h"

#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "platform/windows/folder_lock.h"
#include "platform/windows/system.h"
#include "platform/windows/text.h"

namespace nvfp4::platform {
namespace {

constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;
// Other processes may read, write, rename and remove an open file, as on POSIX systems.
constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
// A lock keeps other processes from reading. The locked byte is therefore one that no file has.
constexpr DWORD kLockedFrom = 0x40000000;  // upper half of the offset

HANDLE handle_of(int fd) { return reinterpret_cast<HANDLE>(::_get_osfhandle(fd)); }

OVERLAPPED at(std::uint64_t offset) {
  OVERLAPPED where{};
  where.Offset = static_cast<DWORD>(offset);
  where.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return where;
}

std::int64_t ns_of(const FILETIME& time) {
  constexpr std::int64_t kFrom1601To1970 = 116'444'736'000'000'000;  // in steps of 100 ns
  const auto steps =
      static_cast<std::int64_t>(std::uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime);
  return (steps - kFrom1601To1970) * 100;
}

std::optional<FileStatus> status_of_handle(HANDLE file) {
  FileStatus status;
  BY_HANDLE_FILE_INFORMATION info{};
  if (file == INVALID_HANDLE_VALUE) {
    fail();
    return {};
  }
  const DWORD type = ::GetFileType(file);
  if (type == FILE_TYPE_CHAR || type == FILE_TYPE_PIPE) return status;
  if (::GetFileInformationByHandle(file, &info) == 0) {
    fail();
    return {};
  }
  const bool folder = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  const bool read_only = (info.dwFileAttributes & FILE_ATTRIBUTE_READONLY) != 0;
  status.kind = folder ? FileStatus::Kind::folder : FileStatus::Kind::file;
  status.bytes = status.allocated = std::uint64_t{info.nFileSizeHigh} << 32 | info.nFileSizeLow;
  status.modified_ns = ns_of(info.ftLastWriteTime);
  status.volume = info.dwVolumeSerialNumber;
  status.number = std::uint64_t{info.nFileIndexHigh} << 32 | info.nFileIndexLow;
  status.mode = folder ? 0777 : read_only ? 0444 : 0666;
  return status;
}

HANDLE open_to_look(const std::filesystem::path& path) {
  // Without FILE_FLAG_BACKUP_SEMANTICS a folder cannot be opened.
  return ::CreateFileW(native(path).c_str(), FILE_READ_ATTRIBUTES, kShareAll, nullptr,
                       OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
}

struct HowToOpen {
  DWORD access, disposition, flags;
};

HowToOpen how_to(Open how) {
  switch (how) {
    case Open::read:
    case Open::read_promptly:
      // A folder can be opened, too. It is refused later by its type, as on POSIX systems.
      return {GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS};
    case Open::folder:
      return {FILE_LIST_DIRECTORY, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS};
    case Open::create:
      return {GENERIC_READ | GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_NORMAL};
    case Open::append:
      return {GENERIC_WRITE, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL};
    case Open::sync:  // a file opened for reading cannot be flushed
      return {GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL};
    case Open::lock:
      return {GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS, FILE_FLAG_OPEN_REPARSE_POINT};
  }
  return {};
}

/// Returns the number of bytes, or -1.
template <class Call>
std::ptrdiff_t moved(Call call) {
  DWORD bytes = 0;
  if (call(&bytes) != 0) return static_cast<std::ptrdiff_t>(bytes);
  const DWORD error = ::GetLastError();
  // The end of a file or of a pipe.
  if (error == ERROR_HANDLE_EOF) return 0;
  return fail();
}

DWORD limited(std::size_t bytes) { return static_cast<DWORD>(std::min(bytes, kMaxTransfer)); }

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) platform::close(fd_);
}

bool is_disk_full(int error) { return error == ENOSPC; }

Descriptor open(const std::filesystem::path& path, Open how) {
  const HowToOpen with = how_to(how);
  const HANDLE file = ::CreateFileW(native(path).c_str(), with.access, kShareAll, nullptr,
                                    with.disposition, with.flags, nullptr);
  if (file == INVALID_HANDLE_VALUE) return Descriptor(fail());
  const auto refuse = [file](int error) {
    ::CloseHandle(file);
    errno = error;
    return Descriptor();
  };
  if (how == Open::folder || how == Open::lock) {
    FILE_ATTRIBUTE_TAG_INFO info{};
    if (::GetFileInformationByHandleEx(file, FileAttributeTagInfo, &info, sizeof info) != 0) {
      if (how == Open::folder && (info.FileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0)
        return refuse(ENOTDIR);
      if (how == Open::lock && (info.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0)
        return refuse(EACCES);
    }
  }
  const int fd = ::_open_osfhandle(reinterpret_cast<std::intptr_t>(file), _O_BINARY | _O_NOINHERIT);
  return fd < 0 ? refuse(EMFILE) : Descriptor(fd);
}

bool close(int fd) {
  unlock_folder(fd);
  return ::_close(fd) == 0;
}

std::optional<FileStatus> status_of(int fd) { return status_of_handle(handle_of(fd)); }

std::optional<FileStatus> status_of(const std::filesystem::path& path) {
  const HANDLE file = open_to_look(path);
  std::optional<FileStatus> status = status_of_handle(file);
  if (file != INVALID_HANDLE_VALUE) ::CloseHandle(file);
  return status;
}

bool set_mode(const std::filesystem::path& path, unsigned mode) {
  constexpr unsigned kOwnerWrites = 0200;
  const std::wstring file = native(path);
  const DWORD before = ::GetFileAttributesW(file.c_str());
  if (before == INVALID_FILE_ATTRIBUTES) return fail() == 0;
  const DWORD after = (mode & kOwnerWrites) != 0 ? before & ~DWORD{FILE_ATTRIBUTE_READONLY}
                                                 : before | FILE_ATTRIBUTE_READONLY;
  return after == before || ::SetFileAttributesW(file.c_str(), after) != 0 || fail() == 0;
}

std::ptrdiff_t read(int fd, void* out, std::size_t bytes) {
  const std::ptrdiff_t n =
      moved([&](DWORD* n) { return ::ReadFile(handle_of(fd), out, limited(bytes), n, nullptr); });
  return n < 0 && errno == EPIPE ? 0 : n;  // the pipe has no writer any more
}

std::ptrdiff_t write(int fd, const void* data, std::size_t bytes) {
  return moved(
      [&](DWORD* n) { return ::WriteFile(handle_of(fd), data, limited(bytes), n, nullptr); });
}

std::ptrdiff_t read_at(int fd, void* out, std::size_t bytes, std::uint64_t offset) {
  OVERLAPPED where = at(offset);
  return moved([&](DWORD* n) { return ::ReadFile(handle_of(fd), out, limited(bytes), n, &where); });
}

std::ptrdiff_t write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  OVERLAPPED where = at(offset);
  return moved(
      [&](DWORD* n) { return ::WriteFile(handle_of(fd), data, limited(bytes), n, &where); });
}

// The cache of Windows reads ahead and writes behind by itself.
void will_read(int, std::uint64_t, std::uint64_t) {}
void start_writing(int, std::uint64_t, std::uint64_t) {}

Range next_data(int fd, std::uint64_t from) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  const std::optional<FileStatus> status = status_of(fd);
  return status && from < status->bytes ? Range{from, status->bytes} : Range{kNone, kNone};
}

bool reserve(int fd, std::uint64_t bytes) {
  FILE_ALLOCATION_INFO allocation{};
  allocation.AllocationSize.QuadPart = static_cast<LONGLONG>(bytes);
  if (::SetFileInformationByHandle(handle_of(fd), FileAllocationInfo, &allocation,
                                   sizeof allocation) == 0) {
    // Only a full disk is an error. If the file system cannot reserve, the size is enough.
    fail();
    if (is_disk_full(errno)) return false;
  }
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(bytes);
  return ::SetFileInformationByHandle(handle_of(fd), FileEndOfFileInfo, &end, sizeof end) != 0 ||
         fail() == 0;
}

bool sync(int fd) { return ::FlushFileBuffers(handle_of(fd)) != 0 || fail() == 0; }

// NTFS makes names durable by its journal. A folder opened for reading cannot be flushed.
bool sync_folder(int) { return true; }

// Only an administrator can flush a volume.
const bool kSyncsFileSystems = false;
bool sync_file_system(int fd) { return sync(fd); }

bool remove_file(const std::filesystem::path& path) {
  return ::DeleteFileW(native(path).c_str()) != 0 || fail() == 0;
}

bool replace_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::MoveFileExW(native(from).c_str(), native(to).c_str(),
                       MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0 ||
         fail() == 0;
}

bool link_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::CreateHardLinkW(native(to).c_str(), native(from).c_str(), nullptr) != 0 || fail() == 0;
}

bool may_write_in(const std::filesystem::path& folder) {
  // The folder is opened for creating files in it. The rights are in access lists, not attributes.
  const HANDLE opened = ::CreateFileW(native(folder).c_str(), FILE_ADD_FILE, kShareAll, nullptr,
                                      OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (opened == INVALID_HANDLE_VALUE) return fail() == 0;
  ::CloseHandle(opened);
  return true;
}

bool lock(int fd) {
  OVERLAPPED where{};
  where.OffsetHigh = kLockedFrom;
  return ::LockFileEx(handle_of(fd), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                      &where) != 0 ||
         fail() == 0;
}

const std::byte* map(int fd, std::uint64_t bytes) {
  const HANDLE mapping = ::CreateFileMappingW(handle_of(fd), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) {
    fail();
    return nullptr;
  }
  void* const start = ::MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, bytes);
  if (start == nullptr) fail();
  ::CloseHandle(mapping);  // the view keeps the mapping
  return static_cast<const std::byte*>(start);
}

void unmap(const std::byte* start, std::uint64_t) { ::UnmapViewOfFile(start); }

}  // namespace nvfp4::platform
