#include "checkpoint/output/output_file.h"

#include <cerrno>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/output_folder.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

namespace fs = std::filesystem;

void check_output_file(const fs::path& output, std::string_view extension,
                       const TransformOptions& options) {
  require<UnsupportedError>(!options.resume,
                            "resume: {} is one file, written whole or not at all; run without",
                            output.string());
  require<ValueError>(output.extension() == extension, "output = {}, must end in {}",
                      output.string(), extension);
  require_no_dangling_link(output);
  const fs::file_status status = fs::status(output);
  if (fs::exists(status)) {
    require<IoError>(fs::is_regular_file(status), "{}: must be a regular file", output.string());
    require<ValueError>(!fs::equivalent(options.input, output),
                        "output {} is the input, must be another", output.string());
    require<IoError>(options.overwrite, "{}: is there already; --overwrite replaces it",
                     output.string());
  }
  fs::path folder = fs::absolute(output).parent_path();
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  require<IoError>(fs::is_directory(folder), "{}: is a file, must be a folder", folder.string());
  if (!platform::may_write_in(folder)) throw_io_error(folder, "create a file in", errno);
}

FolderOf::FolderOf(const fs::path& output) {
  fs::path folder = fs::absolute(output).parent_path();
  for (fs::path at = folder; !fs::exists(at); at = at.parent_path()) made_.push_back(at);
  fs::create_directories(folder);
}

FolderOf::~FolderOf() {
  std::error_code ignored;
  for (const fs::path& folder : made_) fs::remove(folder, ignored);
}

}  // namespace nvfp4::checkpoint
