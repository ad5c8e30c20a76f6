#include "report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>
#include <system_error>

#include "commands.h"
#include "nvfp4/error.h"
#include "nvfp4/safetensors.h"

namespace nvfp4::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as in the kernel

/// "/dev/stdout" -> 1, "/dev/fd/63" -> 63; -1 for other paths. Opened by its name, a redirected
/// stdout would have a second position, and one text would overwrite the other.
int descriptor_of(const fs::path& path) {
  const std::string name = path.string();
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(prefix)) continue;
    int number = -1;
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
    if (error == std::errc() && at == end) return number;
  }
  return -1;
}

void refuse(const fs::path& path, const std::string& why) {
  throw CLI::ValidationError("--report", fmt::format("'{}' {}", path.string(), why));
}

void write_all(int fd, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw IoError(fmt::format("--report: cannot write to '{}': {}", path.string(),
                                std::generic_category().message(errno)));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

ReportFile::ReportFile(const fs::path& path, const fs::path& input_folder,
                       const std::optional<fs::path>& input_amax)
    : path_(fs::absolute(path)) {
  std::error_code error;
  for (int links = 0; descriptor_ < 0; ++links) {
    descriptor_ = descriptor_of(path_);
    if (descriptor_ >= 0) return;
    if (!fs::is_symlink(fs::symlink_status(path_, error))) break;
    if (links == kMaxLinks)
      throw IoError(fmt::format("--report: too many links: '{}'", path.string()));
    path_ = path_.parent_path() / fs::read_symlink(path_);
  }
  if (fs::is_directory(path_, error) || !path_.has_filename()) refuse(path, "is a folder");
  const fs::path real = fs::weakly_canonical(path_, error);
  const fs::path input = fs::weakly_canonical(input_folder, error);
  if (std::mismatch(input.begin(), input.end(), real.begin(), real.end()).first == input.end())
    refuse(path, "is in the input, which is never changed");
  if (input_amax && fs::equivalent(path_, *input_amax, error))
    refuse(path, "is the file of --input-amax");
  const fs::path folder = path_.parent_path();
  if (!fs::is_directory(folder, error))
    throw IoError(fmt::format("--report: there is no folder '{}'", folder.string()));
}

void ReportFile::write(std::string_view text) const {
  if (descriptor_ >= 0) {
    std::fflush(nullptr);
    return write_all(descriptor_, path_, text);
  }
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status))
    return safetensors::write_file_atomically(path_, text);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0)
    throw IoError(fmt::format("--report: cannot open '{}': {}", path_.string(),
                              std::generic_category().message(errno)));
  try {
    write_all(fd, path_, text);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

}  // namespace nvfp4::cli
