#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace nvfp4::cli {

/// Where --report goes. A regular file is replaced whole; a pipe or a device is written to.
class ReportFile {
 public:
  /// Better refused now than after an hour. Throws CLI::ValidationError for a folder, a path
  /// inside of the input and a file that the run reads; IoError if its folder is not there.
  ReportFile(const std::filesystem::path& path, const std::filesystem::path& input,
             const std::optional<std::filesystem::path>& input_amax);
  /// Throws IoError.
  void write(std::string_view text) const;

 private:
  std::filesystem::path path_;  ///< no link any more
  int descriptor_ = -1;         ///< of "/dev/stdout" and the like
};

}  // namespace nvfp4::cli
