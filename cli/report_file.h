#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::cli {

/// The file of --report or --html. A regular file is replaced atomically; a pipe or a device is
/// written directly.
class ReportFile {
 public:
  /// Checks the path before the run rather than after an hour. `option` is the name for messages.
  /// Throws CLI::ValidationError for a folder, a path inside of `inputs` or `also_read`, and a file
  /// that the run reads. Throws IoError if the folder does not exist.
  ReportFile(std::string option, const std::filesystem::path& path,
             const std::vector<std::filesystem::path>& inputs,
             const std::optional<std::filesystem::path>& also_read = {});
  /// Writes the file. Throws IoError.
  void write(std::string_view text) const;

 private:
  void refuse(const std::filesystem::path& path, const std::string& why) const;

  std::string option_;
  std::filesystem::path path_;  ///< path with links resolved
  int descriptor_ = -1;         ///< descriptor of "/dev/stdout" and the like
};

}  // namespace nvfp4::cli
