#include "checkpoint/hub/hub.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "checkpoint/hub/hub_process.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/printable.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/require.h"
#include "nvfp4/hub.h"
#include "platform/process.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--", kSnapshots = "snapshots";

/// A part of a name, as the hub takes it: letters, digits, "-", "_", "."; neither "--" nor "..".
bool is_part(std::string_view part) {
  return !part.empty() && part.size() <= 96 && part.find("--") == part.npos &&
         part.find("..") == part.npos && part.front() != '-' && part.front() != '.' &&
         part.back() != '-' && part.back() != '.' && std::ranges::all_of(part, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                  c == '.';
         });
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// As Python's expanduser does it for one's own home.
fs::path expanded(std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(environment(platform::kHomeVariable)) /
         path.substr(std::min<std::size_t>(2, path.size()));
}

/// The snapshot that refs/main names; none if it or a shard of it is missing.
std::optional<fs::path> snapshot_of(std::string_view id) {
  const std::size_t slash = id.find('/');
  const std::string folder =
      fmt::format("{}{}--{}", kModels, id.substr(0, slash), id.substr(slash + 1));
  const fs::path model = hub_cache() / folder, ref = model / "refs" / "main";
  std::error_code error;
  if (!fs::is_regular_file(ref, error) || fs::file_size(ref, error) > 1000) return {};
  std::string revision = read_model_text(ref);
  while (revision.ends_with('\n')) revision.pop_back();
  if (!is_part(revision)) return {};
  fs::path snapshot = model / "snapshots" / revision;
  std::vector<std::string> shards;
  for (fs::directory_iterator entry(snapshot, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".safetensors" && fs::exists(entry->path(), error))
      shards.push_back(entry->path().filename().string());
  std::ranges::sort(shards);
  if (shards.empty() || !fs::exists(snapshot / "config.json", error)) return {};
  if (!lost_shards(snapshot, shards).empty()) return {};
  return snapshot;
}

/// "models--org--name" -> "org/name"; "" for other names.
std::string id_of_folder(std::string_view folder) {
  if (!folder.starts_with(kModels)) return {};
  const std::string_view rest = folder.substr(kModels.size());
  const std::size_t dashes = rest.find("--");
  std::string id = dashes == rest.npos
                       ? std::string(rest)
                       : fmt::format("{}/{}", rest.substr(0, dashes), rest.substr(dashes + 2));
  const std::size_t slash = id.find('/');
  const std::string_view all = id;
  const bool valid = slash == id.npos
                         ? is_part(all)
                         : is_part(all.substr(0, slash)) && is_part(all.substr(slash + 1));
  return valid ? id : "";
}

}  // namespace

std::optional<HubModel> hub_model_of(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  const std::vector<fs::path> parts(whole.begin(), whole.end());
  for (std::size_t i = 0; i + 2 < parts.size(); ++i) {
    if (parts[i + 1] != kSnapshots) continue;
    const std::string revision = parts[i + 2].string();
    if (std::string id = id_of_folder(parts[i].string()); !id.empty() && is_part(revision))
      return HubModel{std::move(id), revision};
  }
  return {};
}

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

using namespace checkpoint;

bool is_hub_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != name.npos && is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

std::filesystem::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto folder = environment(name); !folder.empty()) return expanded(folder);
  if (const auto home = environment("HF_HOME"); !home.empty()) return expanded(home) / "hub";
  const std::string_view cache = environment("XDG_CACHE_HOME");
  return expanded(cache.empty() ? "~/.cache" : cache) / "huggingface" / "hub";
}

namespace {

bool is_offline() {
  const std::string_view offline = environment("HF_HUB_OFFLINE");
  return !offline.empty() && offline != "0";
}

[[noreturn]] void throw_missing(const std::string& id, int status) {
  const std::string failed =
      status == 127 ? "" : fmt::format("; hf download ended with status {}", status);
  throw IoError(fmt::format(
      "{0}: no such folder, and the model {0} is not whole in the Hugging Face cache {1}{2}; "
      "'hf download {0}' fetches it (pip install huggingface_hub has hf)",
      id, printable(hub_cache().string()), failed));
}

/// Where it is without a download.
std::optional<fs::path> place_of(const fs::path& name) {
  std::error_code error;
  const std::string id = name.string();
  if (fs::exists(fs::symlink_status(name, error)) || !is_hub_name(id)) return name;
  return snapshot_of(id);
}

fs::path download_whole(const std::string& id) {
  const int status = run_hf(id);
  if (auto snapshot = snapshot_of(id); status == 0 && snapshot) return *snapshot;
  throw_missing(id, status);
}

class HubSupply final : public ShardSupply {
 public:
  HubSupply(std::unique_ptr<HubProcess> process, std::string commit)
      : process_(std::move(process)), commit_(std::move(commit)) {}

  std::string identity() const override { return commit_; }

  void expect(const std::vector<std::string>& shards) override {
    for (const std::string& shard : shards) process_->write_line("order " + shard);
  }
  void need(const std::string& shard) override {
    process_->write_line("need " + shard);
    require<IoError>(process_->read_line() == "have " + shard,
                     "{}: its download from the hub has ended", shard);
  }
  void done(const std::string& shard) override { process_->write_line("done " + shard); }

 private:
  std::unique_ptr<HubProcess> process_;
  std::string commit_;
};

/// The folder of a model whose shards arrive later, and what brings them; null: it must be whole.
std::pair<fs::path, std::shared_ptr<ShardSupply>> stage(const std::string& id,
                                                        const fs::path& staging) {
  const auto python = hub_python();
  if (!python) return {};
  auto process = std::make_unique<HubProcess>(
      *python, std::vector<std::string>{"stage", id, fs::absolute(staging).string()});
  const auto folder = after_word(process->read_line(), "staged");
  if (!folder) return {};
  return {*folder,
          std::make_shared<HubSupply>(std::move(process), fs::path(*folder).filename().string())};
}

}  // namespace

std::filesystem::path find_model(const std::filesystem::path& name, Download download) {
  if (auto place = place_of(name)) return *place;
  if (download == Download::no || is_offline()) throw_missing(name.string(), 127);
  return download_whole(name.string());
}

HubInput::HubInput(RunOptions& options, bool streams) : options_(options) {
  require_no_address(options.output);  // beside which a download would lie
  if (auto place = place_of(options.input)) {
    options.input = *place;
    return;
  }
  const std::string id = options.input.string();
  if (options.dry_run || is_offline()) throw_missing(id, 127);
  if (streams) {
    const fs::path& output = options.output;
    staging_ = output.has_filename() ? output : output.parent_path();  // without a slash behind it
    staging_ += ".download";
    std::tie(options.input, options.supply) = stage(id, staging_);
    if (options.supply) return;
    staging_.clear();
    options.input = id;
  }
  options.input = download_whole(id);
}

HubInput::~HubInput() {
  options_.supply.reset();  // ends what downloads into the folder
  std::error_code ignored;
  if (!staging_.empty() && !fs::exists(options_.output / kJournalName, ignored))
    fs::remove_all(staging_, ignored);
}

}  // namespace nvfp4
