#include "checkpoint/io/posix_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>

#include "checkpoint/base/error_codes.h"
#include "core/printable.h"
#include "core/require.h"
#include "platform/process.h"

namespace nvfp4 {
namespace {

// Writes of at least this size go to the disk at once. Then fsync has little left to wait for.
constexpr std::size_t kFlushFrom = 1 << 20;

constexpr std::string_view kPartial = ".partial";

bool is_of_tag(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; }

/// Reports whether the text is a tag: ".<host>-<process>-<8 digits>".
bool is_tag(std::string_view text) {
  constexpr std::size_t kDigits = 8;
  return text.starts_with('.') && std::ranges::count(text, '-') >= 2 &&
         text.size() - text.rfind('-') == kDigits + 1 &&
         std::ranges::all_of(text.substr(1), is_of_tag);
}

/// The folders below which partial files are tagged.
struct TaggedFolders {
  std::mutex mutex;
  std::multiset<std::filesystem::path> all;
};

TaggedFolders& tagged_folders() {
  static TaggedFolders folders;
  return folders;
}

/// Returns the tag of this process. It has a random number, since several machines may have one
/// name.
std::string process_tag() {
  static const unsigned number = platform::random_number();
  std::string tag =
      fmt::format("{}-{}-{:08x}", platform::host_name(), platform::process_id(), number);
  std::ranges::replace_if(tag, std::not_fn(is_of_tag), '-');
  return fmt::format(".{}", tag);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? "." : parent;
}

Descriptor open_to_read(const std::filesystem::path& path) {
  Descriptor fd = platform::open(path, platform::Open::read_promptly);
  if (fd.get() < 0) throw_io_error(path, "open", errno);
  return fd;
}

/// Returns the first folder of a path in which this process may not look, or "".
std::filesystem::path closed_folder(const std::filesystem::path& path) {
  std::filesystem::path folder;
  for (const std::filesystem::path& part : path) {
    std::error_code error;
    static_cast<void>(std::filesystem::status(folder / part, error));
    if (error == std::errc::permission_denied) return folder.empty() ? "." : folder;
    folder /= part;
  }
  return {};
}

/// Returns the reason of a refusal. It names a folder above the path that is closed.
std::string reason_of(const std::filesystem::path& path, const std::error_code& error) {
  const std::filesystem::path closed =
      error == std::errc::permission_denied ? closed_folder(path) : "";
  return closed.empty() ? error.message()
                        : fmt::format("{}: this user may not search the folder {}", error.message(),
                                      printable(closed.string(), 4096));
}

}  // namespace

void throw_io_error(const std::filesystem::path& path, const std::string& action, int error) {
  const std::error_code reason(error, std::generic_category());
  const ErrorCode code = error_code(reason);
  throw IoError(
      fmt::format("{}: cannot {}: {}{}", printable(path.string(), 4096), action,
                  code == ErrorCode::disk_full ? "disk full: " : "", reason_of(path, reason)),
      code);
}

void require_readable(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    open_to_read(path);
    return;
  }
  const std::filesystem::directory_iterator entries(path, error);
  if (error) throw_io_error(path, "open", error.value());
  // Finding a file in the folder needs another permission.
  static_cast<void>(std::filesystem::status(path / "config.json", error));
  if (error == std::errc::permission_denied) throw_io_error(path, "open", error.value());
}

void require_exists(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::status(path, error)))
    throw_io_error(path, "open", error ? error.value() : ENOENT);
}

void throw_io_error(const std::filesystem::filesystem_error& error) {
  // The text is like "filesystem error: cannot create directories: Permission denied [a/b]".
  constexpr std::string_view kPrefix = "filesystem error: ";
  const std::string reason = error.code().message();
  std::string_view what = error.what();
  if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
  what = what.substr(0, what.find(": " + reason));
  const std::string path = printable(error.path1().string(), 4096);
  throw IoError(fmt::format("{}{}{}: {}", path, path.empty() ? "" : ": ", what,
                            reason_of(error.path1(), error.code())),
                error_code(error.code()));
}

void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset,
             std::span<std::byte> out) {
  const std::uint64_t end = offset + out.size();
  while (!out.empty()) {
    const std::ptrdiff_t n = platform::read_at(fd, out.data(), out.size(), offset);
    if (n < 0) throw_io_error(path, "read", errno);
    require<IoError>(n > 0, ErrorCode::input_shortened,
                     "{}: became shorter: ends at byte {}, must have {}",
                     printable(path.string(), 4096), offset, end);
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(open_to_read(path_)) {
  const std::optional<platform::FileStatus> status = platform::status_of(fd_.get());
  if (!status) throw_io_error(path_, "stat", errno);
  using Kind = platform::FileStatus::Kind;
  require<IoError>(status->kind == Kind::file, ErrorCode::not_a_file,
                   "{}: {}, must be a regular file", printable(path_.string(), 4096),
                   status->kind == Kind::folder ? "a folder" : "a pipe, socket or device");
  status_ = *status;
}

void InputFile::will_read(std::uint64_t offset, std::uint64_t bytes) const {
  platform::will_read(fd_.get(), offset, bytes);
}

void InputFile::check_unchanged() const {
  const std::optional<platform::FileStatus> now = platform::status_of(path_);
  if (!now) throw_io_error(path_, "stat", errno);
  const std::string file = printable(path_.string(), 4096);
  require<IoError>(now->volume == status_.volume && now->number == status_.number,
                   ErrorCode::input_replaced,
                   "{}: was replaced by another file since it was opened", file);
  require<IoError>(now->bytes == status_.bytes, ErrorCode::input_replaced,
                   "{}: has {} bytes, must still have {}", file, now->bytes, status_.bytes);
  require<IoError>(now->modified_ns == status_.modified_ns, ErrorCode::input_replaced,
                   "{}: was modified since it was opened", file);
}

std::filesystem::path partial_path(std::filesystem::path path) {
  TaggedFolders& folders = tagged_folders();
  const std::lock_guard lock(folders.mutex);
  const bool tagged = std::ranges::any_of(folders.all, [&](const auto& folder) {
    return std::ranges::mismatch(folder, path).in1 == folder.end();
  });
  if (tagged) path += process_tag();
  return path += kPartial;
}

PartialTag::PartialTag(std::filesystem::path folder)
    : folder_(folder.has_filename() ? std::move(folder) : folder.parent_path()) {
  const std::lock_guard lock(tagged_folders().mutex);
  tagged_folders().all.insert(folder_);
}

PartialTag::~PartialTag() {
  const std::lock_guard lock(tagged_folders().mutex);
  tagged_folders().all.erase(tagged_folders().all.find(folder_));
}

std::vector<std::string> names_when_whole(std::string name) {
  if (!name.ends_with(kPartial)) return {};
  name.resize(name.size() - kPartial.size());
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || !is_tag(std::string_view(name).substr(dot))) return {name};
  return {name, name.substr(0, dot)};
}

void remove_partials(const std::filesystem::path& folder, const std::set<std::string>& names) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto whole = names_when_whole(entry.path().filename().string());
    if (std::ranges::any_of(whole, [&](const std::string& name) { return names.contains(name); }))
      std::filesystem::remove(entry.path());
  }
}

std::string lack_of_room(const std::filesystem::space_info& space, std::uint64_t bytes,
                         std::uint64_t freed) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const bool known = space.capacity > 0 && space.capacity < kMost && space.free > 0 &&
                     space.free <= space.capacity;
  if (!known || bytes <= space.free || bytes - space.free <= freed) return {};
  return fmt::format("disk full: the output takes {:.2f} GB, {:.2f} GB are free there",
                     1e-9 * static_cast<double>(bytes),
                     1e-9 * static_cast<double>(space.free + freed));
}

std::string lack_of_room(const std::filesystem::path& path, std::uint64_t bytes,
                         std::uint64_t freed) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (!error && !std::filesystem::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  return error ? std::string() : lack_of_room(space, bytes, freed);
}

PartialFile::PartialFile(std::filesystem::path path)
    : path_(std::move(path)), partial_(partial_path(path_)) {
  // A process that still writes the file holds its lock. The lock ends with the process, even after
  // a kill.
  Descriptor stale = platform::open(partial_, platform::Open::read_promptly);
  if (stale.get() >= 0) require_lock(stale);
  // The file is new: a link with this name is not followed.
  if (!platform::remove_file(partial_) && errno != ENOENT)
    throw_io_error(partial_, "remove the stale file", errno);
  fd_ = platform::open(partial_, platform::Open::create);
  if (fd_.get() < 0 && stale.get() >= 0) {  // On Windows an open file may keep its name.
    stale = Descriptor();
    fd_ = platform::open(partial_, platform::Open::create);
  }
  if (fd_.get() < 0) throw_io_error(partial_, "create", errno);
  require_lock(fd_);
}

/// Throws IoError if another process holds the lock. File systems without locks report other
/// errors; then only is_own() guards against two runs.
void PartialFile::require_lock(const Descriptor& fd) const {
  const bool busy = !platform::lock(fd.get()) && errno == EWOULDBLOCK;
  require<IoError>(!busy, ErrorCode::output_busy, "{}: another process is writing to it",
                   printable(path_.string(), 4096));
}

/// Reports whether the name still refers to the file that was made here.
bool PartialFile::is_own() const {
  const auto made = platform::status_of(fd_.get());
  const auto named = platform::status_of(partial_);
  return made && named && made->volume == named->volume && made->number == named->number;
}

PartialFile::~PartialFile() {
  if (committed_) return;
  const bool own = fd_.get() < 0 || is_own();
  fd_ = Descriptor();
  if (own) platform::remove_file(partial_);
}

void PartialFile::reserve(std::uint64_t bytes) {
  if (bytes == 0 || platform::reserve(fd_.get(), bytes)) return;
  const int error = errno;
  throw_io_error(partial_, fmt::format("reserve {} bytes", bytes), error);
}

void PartialFile::write_at(std::uint64_t offset, std::span<const std::byte> data) {
  const std::uint64_t begin = offset, bytes = data.size();
  while (!data.empty()) {
    const std::ptrdiff_t n = platform::write_at(fd_.get(), data.data(), data.size(), offset);
    if (n < 0) throw_io_error(partial_, "write", errno);
    offset += static_cast<std::uint64_t>(n);
    data = data.subspan(static_cast<std::size_t>(n));
  }
  // commit() reports bytes that fail to reach the disk.
  if (bytes >= kFlushFrom) platform::start_writing(fd_.get(), begin, bytes);
}

void PartialFile::commit() {
  if (!platform::sync(fd_.get())) throw_io_error(partial_, "fsync", errno);
  give_name();
  const auto folder = folder_of(path_);
  const Descriptor dir = platform::open(folder, platform::Open::folder);
  if (dir.get() < 0) throw_io_error(folder, "open", errno);
  if (!platform::sync_folder(dir.get())) throw_io_error(folder, "fsync", errno);
}

void PartialFile::give_name() {
  require<IoError>(is_own(), ErrorCode::output_busy, "{}: another process is writing to it",
                   printable(path_.string(), 4096));
  if (!platform::close(fd_.release())) throw_io_error(partial_, "close", errno);
  if (!platform::replace_file(partial_, path_)) {
    const int error = errno;
    throw_io_error(partial_, fmt::format("rename to {}", printable(path_.filename().string())),
                   error);
  }
  committed_ = true;
}

}  // namespace nvfp4
