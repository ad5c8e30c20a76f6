
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/options.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 8;

/// Returns the entries of a folder, sorted by name, or nothing if the folder cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> out;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error))
    out.push_back(it->path());
  std::ranges::sort(out);
  return out;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string shown(const fs::path& path) { return printable(path.string(), 4096); }

/// Returns a text such as "a, b and 3 more".
std::string list_of(const std::vector<std::string>& names) {
  const std::size_t n = std::min(names.size(), kMostNamed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + n, ", "));
  if (names.size() > n) text += fmt::format(" and {} more", names.size() - n);
  return text;
}

std::vector<fs::path> folders_of(const fs::path& folder, std::string_view prefix = {}) {
  std::vector<fs::path> out;
  for (fs::path& entry : entries_of(folder))
    if (entry.filename().string().starts_with(prefix) && is_folder(entry))
      out.push_back(std::move(entry));
  return out;
}

std::vector<std::string> shown(const std::vector<fs::path>& paths) {
  std::vector<std::string> out;
  out.reserve(paths.size());
  for (const fs::path& path : paths) out.push_back(shown(path));
  return out;
}

bool holds_weights(const fs::path& folder) {
  return std::ranges::any_of(entries_of(folder), [](const fs::path& entry) {
    return entry.extension() == ".safetensors";
  });
}

fs::path snapshot_of(const fs::path& cache) {
  const std::vector<fs::path> all = folders_of(cache / "snapshots");
  if (all.size() == 1) return all[0];
  const fs::path ref = cache / "refs" / "main";
  std::error_code ignored;
  std::string revision = fs::exists(ref, ignored) ? read_model_text(ref) : "";
  while (revision.ends_with('\n')) revision.pop_back();
  const auto main = std::ranges::find(all, fs::path(revision), &fs::path::filename);
  require<FormatError>(
      main != all.end(),
      "{}: a Hugging Face cache with {} snapshots, and none that refs/main names; "
      "hint: {}",
      shown(cache), all.size(),
      all.empty() ? "hf download fetches one" : "name one: " + list_of(shown(all)));
  return *main;
}

bool is_pickle(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt";
}

/// Returns the path in single quotes, so that a shell reads it as one word.
std::string quoted(const fs::path& path) {
  std::string out = "'";
  for (const char c : shown(path)) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

fs::path model_path(const fs::path& input) {
  require_no_address(input);
  if (!is_folder(input)) return input;
  require_readable(input);
  if (holds_weights(input)) return input;
  if (is_folder(input / "snapshots") && (is_folder(input / "refs") || is_folder(input / "blobs")))
    return snapshot_of(input);
  const std::vector<fs::path> models = folders_of(input, "models--");
  if (models.empty()) return input;
  require<FormatError>(models.size() == 1, ErrorCode::cache_without_model,
                       "{}: a Hugging Face cache of {} models, name one: {}", shown(input),
                       models.size(), list_of(shown(models)));
  return snapshot_of(models[0]);
}

namespace {

std::string no_weights_text(const fs::path& folder) {
  std::string text = shown(folder) + ": holds no .safetensors file";
  std::vector<fs::path> parts;
  for (const fs::path& below : folders_of(folder))
    if (holds_weights(below)) parts.push_back(below);
  std::error_code ignored;
  if (fs::exists(folder / "model_index.json", ignored))
    return fmt::format("{}: a pipeline of diffusers, whose parts are models by themselves; {}",
                       shown(folder),
                       parts.empty() ? "none of them holds a .safetensors file"
                                     : "name one of them: " + list_of(shown(parts)));
  const std::vector<fs::path> entries = entries_of(folder);
  if (const auto gguf = std::ranges::find(entries, fs::path(".gguf"), &fs::path::extension);
      gguf != entries.end())
    return fmt::format("{}; hint: name the GGUF file: {}", text, shown(*gguf));
  if (const auto pickle = std::ranges::find_if(entries, is_pickle); pickle != entries.end())
    return fmt::format(
        "{}, but {}, a pickle; hint: this writes safetensors beside it: python3 -c \"import sys; "
        "sys.path.pop(0); import transformers as t; p = sys.argv[1]; "
        "getattr(t, t.AutoConfig.from_pretrained(p).architectures[0])"
        ".from_pretrained(p, dtype='auto').save_pretrained(p)\" {}",
        text, shown(pickle->filename()), quoted(folder));
  if (!parts.empty()) return fmt::format("{}; these do: {}", text, list_of(shown(parts)));
  return text;
}

}  // namespace

void throw_no_weights(const fs::path& folder) {
  throw IoError(no_weights_text(folder), ErrorCode::no_weights);
}

std::string no_model_file_text(const fs::path& file) {
  std::string text =
      fmt::format("{}: must be a folder, a .safetensors or a .gguf file", shown(file));
  if (!is_pickle(file)) return text;
  fs::path to = file;
  to.replace_extension(".safetensors");
  return fmt::format(
      "{}; hint: this makes one of a pickle: python3 -c \"import sys; sys.path.pop(0); import "
      "torch; from safetensors.torch import save_file; save_file({{k: v.clone() for k, v in "
      "torch.load(sys.argv[1], 'cpu', weights_only=True).items()}}, sys.argv[2], "
      "{{'format': 'pt'}})\" {} {}",
      text, quoted(file), quoted(to));
}

bool is_lfs_pointer(std::string_view text) {
  return text.starts_with("version https://git-lfs.github.com/spec/v1");
}

void throw_lfs_pointer(const fs::path& path) {
  throw FormatError(fmt::format("{}: is a Git LFS pointer, not the file; hint: git lfs pull in its "
                                "folder fetches the file",
                                shown(path)),
                    ErrorCode::lfs_pointer);
}

void require_no_lfs_pointer(const fs::path& path) {
  // The largest size of a pointer, by its specification.
  constexpr std::uintmax_t kMostBytes = 1024;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error || bytes >= kMostBytes) return;
  std::string text(bytes, '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(bytes));
  if (is_lfs_pointer(text)) throw_lfs_pointer(path);
}

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

void require_no_address(const std::filesystem::path& path) {
  const std::string text = path.string();
  const std::size_t scheme = text.find(":/");
  const auto is_letter = [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
  const bool address =
      scheme != text.npos && scheme > 1 && is_letter(text[0]) &&
      std::ranges::all_of(text.substr(0, scheme), [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
      });
  require<UnsupportedError>(!address,
                            "{}: is an address, must be a path in a file system; copy the model "
                            "from the store, and upload what is written",
                            printable(text));
}

}  // namespace nvfp4
