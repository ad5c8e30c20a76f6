#include "checkpoint/safetensors/model_links.h"

#include <algorithm>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool is_below(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

ModelLinks::ModelLinks(const fs::path& root) : roots_{fs::canonical(root)} {
  for (fs::path at = roots_[0]; at.has_relative_path(); at = at.parent_path()) {
    if (at.parent_path().filename() != "snapshots") continue;
    std::error_code absent;
    const fs::path blobs = fs::canonical(at.parent_path().parent_path() / "blobs", absent);
    if (!absent) roots_.push_back(blobs);
    return;
  }
}

void ModelLinks::require_inside(const fs::path& path) const {
  if (!fs::is_symlink(fs::symlink_status(path))) return;
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  const std::string link = printable(path.string(), 4096);
  require<IoError>(!error, ErrorCode::broken_link, "{}: a link that leads nowhere", link);
  const bool inside =
      std::ranges::any_of(roots_, [&](const fs::path& root) { return is_below(target, root); });
  require<IoError>(inside,
                   "{}: a link to {}, which is not in the model folder; put the file itself there",
                   link, printable(target.string(), 4096));
}

}  // namespace nvfp4::checkpoint
