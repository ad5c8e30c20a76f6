#include "checkpoint/output/output.h"

#include "checkpoint/output/output_file.h"
#include "checkpoint/output/output_folder.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

namespace fs = std::filesystem;

std::unique_ptr<Output> make_output(const ModelFolder& model, const Plan& plan,
                                    const TransformOptions& options) {
  if (plan.format != nullptr && plan.format->container != nullptr)
    return std::make_unique<OutputFile>(model, plan, options);
  return std::make_unique<OutputFolder>(model, plan, options);
}

void require_no_dangling_link(const fs::path& output) {
  // A path with a slash at its end refers to the target of the link.
  const fs::path link = output.has_filename() ? output : output.parent_path();
  require<IoError>(!fs::is_symlink(fs::symlink_status(link)) || fs::exists(link),
                   "{}: is a link to {}, which is not there", link.string(),
                   fs::is_symlink(fs::symlink_status(link)) ? fs::read_symlink(link).string() : "");
}

}  // namespace nvfp4::checkpoint
