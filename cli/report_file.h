#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::cli {

/// Where --report or --html goes. A regular file is replaced whole; a pipe or a device is written
/// to.
class ReportFile {
 public:
  /// Better refused now than after an hour. `option` is what to call it. Throws
  /// CLI::ValidationError for a folder, a path inside of `inputs` and `also_read`, a file that the
  /// run reads; IoError if its folder is not there.
  ReportFile(std::string option, const std::filesystem::path& path,
             const std::vector<std::filesystem::path>& inputs,
             const std::optional<std::filesystem::path>& also_read = {});
  /// Throws IoError.
  void write(std::string_view text) const;

 private:
  void refuse(const std::filesystem::path& path, const std::string& why) const;

  std::string option_;
  std::filesystem::path path_;  ///< no link any more
  int descriptor_ = -1;         ///< of "/dev/stdout" and the like
};

}  // namespace nvfp4::cli
