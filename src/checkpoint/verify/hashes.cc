// Compares the files of a folder with the hashes in its list.
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/written_files.h"
#include "checkpoint/source/content.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

void check_hashes(const std::filesystem::path& folder, const std::vector<std::string>& shards,
                  Findings& findings, Measured& measured, const OnProgress& on_progress) {
  const auto list = read_written_files(folder);
  require<UnsupportedError>(list.has_value(),
                            "{}: has no {}, whose hashes --full compares; hint: run without --full",
                            folder.string(), kFilesName);
  for (const std::string& shard : shards)
    if (const auto entry = list->find(shard); entry == list->end() || entry->second.hash.empty())
      findings.add("changed-file", shard, "{}: has no hash in {}", (folder / shard).string(),
                   kFilesName);
  const std::vector<std::pair<std::string, WrittenFile>> files(list->begin(), list->end());
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, written] : files) sizes.push_back(written.bytes.value_or(0));
  const std::vector<bool> mine = measured.mine(sizes);
  nlohmann::json differences(files.size(), nullptr);
  Progress progress;
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.tensors_total += mine[i];
    progress.bytes_total += mine[i] ? sizes[i] : 0;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!mine[i]) continue;
    progress.tensor = files[i].first;
    // People edit the card.
    differences[i] = is_card_name(files[i].first)
                         ? std::string()
                         : difference_from(files[i].second, folder / files[i].first);
    ++progress.tensors_done;
    progress.bytes_done += sizes[i];
    if (on_progress) on_progress(progress);
  }
  measured.exchange("hashes", hex(fingerprint(json_of(*list).dump())), differences);
  for (std::size_t i = 0; i < files.size(); ++i)
    if (differences[i].is_string() && differences[i] != "")  // null: the share of another rank
      findings.add("changed-file", files[i].first, "{}: {}", (folder / files[i].first).string(),
                   differences[i].get<std::string>());
}

}  // namespace nvfp4::checkpoint
