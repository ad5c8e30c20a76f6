#include "checkpoint/safetensors/folder_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace nvfp4::checkpoint {

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
