#include "checkpoint/safetensors/folder_names.h"

#include <fmt/format.h>

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

bool is_card_name(std::string_view name) {
  return std::ranges::find(kCardNames, name) != std::end(kCardNames);
}

bool is_index_name(const std::string& name) { return name.ends_with(".safetensors.index.json"); }

int shard_count_of(const std::string& name) {
  const std::size_t of = name.rfind("-of-");
  if (of == std::string::npos) return 0;
  int count = 0;
  for (std::size_t i = of + 4; i < name.size() && name[i] >= '0' && name[i] <= '9'; ++i)
    count = std::min(count * 10 + (name[i] - '0'), 1'000'000);
  return count;
}

bool is_whole_by_itself(const std::vector<std::string>& found) {
  return std::find(found.begin(), found.end(), kSingleName) != found.end();
}

std::string lost_shards(const std::filesystem::path& folder,
                        const std::vector<std::string>& found) {
  if (is_whole_by_itself(found)) return {};
  for (const std::string& name : found)
    if (const int count = shard_count_of(name);
        count != 0 && count != static_cast<int>(found.size()))
      return fmt::format("{}: {} of {} shards are there, and no index", folder.string(),
                         found.size(), count);
  return {};
}

}  // namespace nvfp4::checkpoint
