#include "checkpoint/source/hub.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/printable.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/source/model_folder.h"
#include "core/require.h"
#include "nvfp4/hub.h"

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
  return fs::path(environment("HOME")) / path.substr(std::min<std::size_t>(2, path.size()));
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

/// `hf download ID`, whose progress goes to stderr. Its status; 127 if PATH has no `hf`.
int run_hf(std::string id) {
  std::string program = "hf", task = "download";
  char* arguments[] = {program.data(), task.data(), id.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // It prints where the model is; our stdout is for our own output.
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, program.c_str(), &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

std::filesystem::path find_model(const std::filesystem::path& name, Download download) {
  std::error_code error;
  const std::string id = name.string();
  if (fs::exists(fs::symlink_status(name, error)) || !is_hub_name(id)) return name;
  if (auto snapshot = snapshot_of(id)) return *snapshot;
  const std::string_view offline = environment("HF_HUB_OFFLINE");
  int status = 127;
  if (download == Download::yes && (offline.empty() || offline == "0")) {
    status = run_hf(id);
    if (auto snapshot = snapshot_of(id); status == 0 && snapshot) return *snapshot;
  }
  const std::string failed =
      status == 127 ? "" : fmt::format("; hf download ended with status {}", status);
  throw IoError(fmt::format(
      "{0}: no such folder, and the model {0} is not whole in the Hugging Face cache {1}{2}; "
      "'hf download {0}' fetches it (pip install huggingface_hub has hf)",
      id, printable(hub_cache().string()), failed));
}

}  // namespace nvfp4
