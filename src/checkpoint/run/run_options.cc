#include "nvfp4/run_options.h"

#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/output_folder.h"
#include "core/require.h"

namespace nvfp4 {

void check_options(const RunOptions& options) try {
  require<ValueError>(!options.input.empty(), "input: empty, must name a model");
  require<ValueError>(!options.output.empty(), "output: empty, must name a folder");
  require<ValueError>(!options.resume || !options.overwrite,
                      "resume and overwrite are both set, must be one of them");
  checkpoint::require_apart(options.input, options.output);
} catch (const std::filesystem::filesystem_error& e) {
  throw_io_error(e);
}

}  // namespace nvfp4
