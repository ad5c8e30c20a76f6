#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/base/error_codes.h"
#include "commands.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the kernel's limit

/// Returns the descriptor of "/dev/stdout" (1) or "/dev/fd/63" (63), or -1 for other paths. A
/// redirected stdout that is opened by its name would have a second position, and texts would
/// overwrite each other.
int descriptor_of(const fs::path& path) {
  const std::string name = path.string();
  if (name == "/dev/stdout") return 1;
  if (name == "/dev/stderr") return 2;
  for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(prefix)) continue;
    int number = -1;
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
    if (error == std::errc() && at == end) return number;
  }
  return -1;
}

[[noreturn]] void refuse_by_system(const std::string& option, const char* action,
                                   const fs::path& path) {
  const std::error_code error(errno, std::generic_category());
  throw IoError(
      fmt::format("{}: cannot {} '{}': {}", option, action, path.string(), error.message()),
      error_code(error));
}

void write_all(const std::string& option, int fd, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const std::ptrdiff_t n = platform::write(fd, text.data(), text.size());
    if (n < 0) refuse_by_system(option, "write to", path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

ReportFile::ReportFile(std::string option, const fs::path& path)
    : option_(std::move(option)), path_(path) {
  std::error_code error;
  for (int links = 0; descriptor_ < 0; ++links) {
    descriptor_ = descriptor_of(path_);
    if (descriptor_ >= 0) return;
    if (!fs::is_symlink(fs::symlink_status(path_, error))) break;
    if (links == kMaxLinks)
      throw IoError(fmt::format("{}: too many links: '{}'", option_, path.string()));
    path_ = path_.parent_path() / fs::read_symlink(path_);
  }
  if (fs::is_directory(path_, error) || !path_.has_filename())
    throw CLI::ValidationError(option_,
                               fmt::format("'{}', must be a file, not a folder", path.string()));
  const fs::path folder = path_.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw IoError(fmt::format("{}: there is no folder '{}'", option_, folder.string()),
                  ErrorCode::not_found);
  const fs::file_status status = fs::status(path_, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) open_pipe(fs::is_fifo(status));
}

/// Opens a pipe or a device now. A reader that starts with this process gets some time.
void ReportFile::open_pipe(bool pipe) {
  constexpr int kTries = 20;
  for (int i = 0; (file_ = platform::open(path_, platform::Open::append)).get() < 0; ++i) {
    if (!pipe || errno != ENXIO) refuse_by_system(option_, "open", path_);
    if (i == kTries)
      throw IoError(fmt::format("{}: nothing reads the pipe '{}'; start its reader first", option_,
                                path_.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  descriptor_ = file_.get();
}

void ReportFile::write(std::string_view text) const {
  if (descriptor_ >= 0) {
    std::fflush(nullptr);
    return write_all(option_, descriptor_, path_, text);
  }
  safetensors::write_file_atomically(path_, text);
}

}  // namespace nvfp4::cli
