#include "checkpoint/hub/hub.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

#include "checkpoint/io/text_file.h"
#include "checkpoint/io/yaml.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/error.h"
#include "platform/process.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--", kSnapshots = "snapshots";

/// Reports whether the text is a part of a name on the hub. It has letters, digits, "-", "_" and
/// ".", but neither "--" nor "..".
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

/// Expands "~" as Python's expanduser does, for the user's own home.
fs::path expanded(std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(environment(platform::kHomeVariable)) /
         path.substr(std::min<std::size_t>(2, path.size()));
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto folder = environment(name); !folder.empty()) return expanded(folder);
  if (const auto home = environment("HF_HOME"); !home.empty()) return expanded(home) / "hub";
  const std::string_view cache = environment("XDG_CACHE_HOME");
  return expanded(cache.empty() ? "~/.cache" : cache) / "huggingface" / "hub";
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// The name of a model on the hub.
struct HubName {
  std::string org, model;
  std::string revision;  ///< a commit, branch or tag; "" if the name has none

  std::string download_command() const {
    return fmt::format("hf download {}/{}{}{}", org, model, revision.empty() ? "" : " --revision ",
                       revision);
  }
};

/// Returns the parts of "org/name" or "org/name@revision", or nothing for other texts.
std::optional<HubName> hub_name_of(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::size_t at = std::min(text.find('@', slash), text.size());
  if (slash == text.size() || at + 1 == text.size()) return {};
  HubName name{std::string(text.substr(0, slash)),
               std::string(text.substr(slash + 1, at - slash - 1)),
               std::string(text.substr(std::min(at + 1, text.size())))};
  const bool valid = is_part(name.org) && is_part(name.model) &&
                     std::ranges::all_of(fs::path(name.revision),
                                         [](const fs::path& p) { return is_part(p.string()); });
  return valid ? std::optional(std::move(name)) : std::nullopt;
}

/// Reports whether a name that does not exist is rather that of a file or folder here than of a
/// model on the hub.
bool is_local(const HubName& name) {
  std::error_code ignored;
  return name.revision.empty() &&
         (fs::is_directory(name.org, ignored) ||
          std::ranges::any_of(
              std::initializer_list<std::string_view>{".safetensor", ".safetensors", ".gguf",
                                                      ".json", ".bin", ".pt"},
              [&](auto end) { return name.model.ends_with(end); }));
}

/// Returns the path that a misspelled one probably means, or "" if there is none.
fs::path meant_path(const fs::path& path) {
  fs::path found;
  for (const fs::path& part : path) {
    std::error_code error;
    fs::path next = found / part;
    if (!part.empty() && !fs::exists(next, error)) {
      std::vector<std::string> names;
      for (fs::directory_iterator entry(found.empty() ? "." : found, error), end;
           !error && entry != end; entry.increment(error))
        names.push_back(entry->path().filename().string());
      std::ranges::sort(names);
      const std::size_t nearest = nearest_name(part.string(), names);
      if (nearest == names.size()) return {};
      next = found / names[nearest];
    }
    found = std::move(next);
  }
  return found;
}

/// Returns the commit of a revision in a model's cache folder, or nothing if there is none.
std::optional<std::string> cached_commit(const fs::path& model, const HubName& name) {
  if (is_commit(name.revision)) return name.revision;
  const fs::path ref = model / "refs" / (name.revision.empty() ? "main" : name.revision);
  std::error_code error;
  if (!fs::exists(ref, error)) return {};
  std::string commit = read_model_text(ref);
  while (commit.ends_with('\n')) commit.pop_back();
  require<FormatError>(
      is_commit(commit),
      "{}: names the commit '{}', must be 40 hexadecimal digits; hint: remove the file, "
      "then '{}' writes it again",
      printable(ref.string(), 4096), printable(commit), name.download_command());
  return commit;
}

/// Returns the snapshot of a model in the cache, or nothing if it or one of its shards is missing.
std::optional<fs::path> snapshot_of(const HubName& name) {
  const fs::path model = hub_cache() / fmt::format("{}{}--{}", kModels, name.org, name.model);
  const std::optional<std::string> commit = cached_commit(model, name);
  if (!commit) return {};
  fs::path snapshot = model / kSnapshots / *commit;
  std::error_code error;
  std::vector<std::string> found,
      counted;  // names with a count; consolidated.safetensors, which may be there, has none
  for (fs::directory_iterator entry(snapshot, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".safetensors" || !fs::exists(entry->path(), error)) continue;
    found.push_back(entry->path().filename().string());
    if (shard_count_of(found.back()) != 0) counted.push_back(found.back());
  }
  if (found.empty() || !fs::exists(snapshot / "config.json", error)) return {};
  if (!is_whole_by_itself(found) && !lost_shards(snapshot, counted).empty()) return {};
  return snapshot;
}

/// Returns "org/name" for "models--org--name", or "" for other names.
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

/// Limits: bytes of the front matter, bytes of a word, words of a list. The results in cards of
/// embedding models take a megabyte.
constexpr std::size_t kBytes = 4 << 20, kWord = 200, kWords = 200;

/// Removes the next line from the text. Returns it without the spaces at its end.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

/// Returns the text between the two lines "---", or "" if they are missing.
std::string_view block(std::string_view card) {
  if (next_line(card) != "---") return {};
  const std::string_view start = card;
  while (!card.empty()) {
    const std::size_t before = start.size() - card.size();
    if (next_line(card) == "---") return start.substr(0, before);
  }
  return {};
}

bool is_word(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && !node.has_tag && !node.has_anchor &&
         !node.text.empty() && node.text.size() <= kWord &&
         std::ranges::all_of(node.text,
                             [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

}  // namespace

std::optional<HubModel> hub_model_of(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  const std::vector<fs::path> parts(whole.begin(), whole.end());
  for (std::size_t i = 0; i + 2 < parts.size(); ++i) {
    if (parts[i + 1] != kSnapshots) continue;
    std::string commit = parts[i + 2].string();
    if (std::string id = id_of_folder(parts[i].string()); !id.empty() && is_commit(commit))
      return HubModel{std::move(id), std::move(commit)};
  }
  return {};
}

std::map<std::string, std::vector<std::string>> front_matter(std::string_view card) try {
  const YamlNode top = parse_yaml(block(card), "the front matter", kBytes);
  std::map<std::string, std::vector<std::string>> members;
  for (std::size_t i = 0; i < top.keys.size(); ++i) {
    const YamlNode& value = top.items[i];
    std::vector<std::string> words;
    if (is_word(value)) words.push_back(value.text);
    if (value.kind == YamlNode::Kind::sequence && value.items.size() <= kWords &&
        std::ranges::all_of(value.items, is_word))
      for (const YamlNode& item : value.items) words.push_back(item.text);
    if (!words.empty()) members[top.keys[i].text] = std::move(words);
  }
  return members;
} catch (const FormatError&) {
  return {};
}

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

namespace fs = std::filesystem;
using namespace checkpoint;

std::optional<fs::path> find_cached_model(const fs::path& name) {
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(name, error));
  if (exists || error == std::errc::permission_denied) return name;
  const std::optional<HubName> hub_name = hub_name_of(name.string());
  if (!hub_name) return name;
  std::optional<fs::path> snapshot = snapshot_of(*hub_name);
  return !snapshot && is_local(*hub_name) ? name : snapshot;
}

fs::path find_model(const fs::path& name) {
  const auto folder = find_cached_model(name);
  std::error_code error;
  // A link that leads nowhere exists, so that no other name is meant.
  const bool exists =
      folder && fs::symlink_status(*folder, error).type() != fs::file_type::not_found;
  const fs::path meant = exists ? fs::path() : meant_path(name);
  if (folder && meant.empty()) return *folder;
  const std::string hint =
      meant.empty() ? "" : fmt::format("did you mean '{}'? ", printable(meant.string(), 4096));
  if (folder)
    throw IoError(fmt::format("{}: no such file or folder; hint: {}",
                              printable(name.string(), 4096), hint.substr(0, hint.size() - 1)),
                  ErrorCode::not_found);
  throw IoError(
      fmt::format("{}: no such folder, and the model is not whole in the Hugging Face cache {}; "
                  "hint: {}{}'{}' fetches it, if the disk has room for all of it (pip install "
                  "huggingface_hub has hf)",
                  name.string(), printable(hub_cache().string(), 4096), hint,
                  environment("HF_HUB_OFFLINE").empty()
                      ? ""
                      : "HF_HUB_OFFLINE is set, so nothing is downloaded; without it ",
                  hub_name_of(name.string())->download_command()),
      ErrorCode::not_in_hub_cache);
}

}  // namespace nvfp4
