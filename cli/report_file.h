#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "platform/files.h"

namespace nvfp4::cli {

/// The file of --report or --html. A regular file is replaced atomically; a pipe or a device is
/// written directly.
class ReportFile {
 public:
  /// Checks the path before the run rather than after an hour. `option` is the name for messages.
  /// Throws CLI::ValidationError for a folder, IoError if the folder of the file does not exist or
  /// nothing reads the pipe.
  ReportFile(std::string option, const std::filesystem::path& path);
  /// Returns the file that is written, with links resolved, or "" for a descriptor of this process.
  std::filesystem::path file() const {
    return descriptor_ < 0 || file_.get() >= 0 ? path_ : std::filesystem::path();
  }
  /// Writes the file. Throws IoError.
  void write(std::string_view text) const;

 private:
  void open_pipe(bool pipe);

  std::string option_;
  std::filesystem::path path_;  ///< path with links resolved
  int descriptor_ = -1;         ///< descriptor of "/dev/stdout" and the like, or of `file_`
  platform::Descriptor file_;   ///< a pipe or a device
};

}  // namespace nvfp4::cli
