#include <algorithm>

#include "checkpoint/io/json_text.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/apart.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/parallel_for.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "platform/files.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;

bool stays_in_folder(const fs::path& path) {
  return !path.empty() && !path.has_root_path() &&
         std::ranges::none_of(path,
                              [](const fs::path& p) { return p == ".." || p == "." || p.empty(); });
}

}  // namespace

WrittenFiles written_files_of(const Json& json, const std::string& file) {
  require<FormatError>(json.is_object(), "{}: files is missing", file);
  WrittenFiles files;
  for (const auto& [path, entry] : json.items()) {
    require<FormatError>(entry.is_object() && stays_in_folder(path),
                         "{}: '{}' must be a path in the folder, with an object", file,
                         printable(path));
    files[path] = written_file_of(entry);
  }
  return files;
}

WrittenFile written_file_of(const Json& entry) {
  WrittenFile written;
  if (!entry.is_object()) return written;
  const auto text = [&](const char* key) {
    const Json value = entry.value(key, Json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  if (const Json bytes = entry.value("bytes", Json()); bytes.is_number_unsigned())
    written.bytes = bytes.get<std::uint64_t>();
  written.hash = text("xxh3");
  written.content = text("content");
  return written;
}

Json json_of(const WrittenFiles& files) {
  Json json = Json::object();
  for (const auto& [path, written] : files) {
    Json& entry = json[path] = Json::object();
    if (written.bytes) entry["bytes"] = *written.bytes;
    if (!written.hash.empty()) entry["xxh3"] = written.hash;
    if (!written.content.empty()) entry["content"] = written.content;
  }
  return json;
}

std::optional<WrittenFiles> read_written_files(const fs::path& folder) {
  const fs::path path = folder / kFilesName;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const Json json = parse_json(read_model_text(path), path.string());
  require<FormatError>(json.is_object() && json.value("version", Json()) == kVersion,
                       "{}: is no list of this version of nvfp4", path.string());
  return written_files_of(json.value("files", Json()), path.string());
}

void save_written_files(const fs::path& folder, const WrittenFiles& files) {
  const Json json = {{"version", kVersion}, {"files", json_of(files)}};
  safetensors::write_file_atomically(
      folder / kFilesName, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

WrittenFile written_file(const fs::path& path) {
  constexpr std::uint64_t kPiece = 1 << 20;
  const InputFile file(path);
  FileHash hash(file.bytes());
  std::vector<std::uint64_t> pieces;  // those that hold data: the others are holes
  for (platform::Range data;
       (data = platform::next_data(file.descriptor(), data.end)).begin < file.bytes();)
    for (std::uint64_t at = data.begin / kPiece * kPiece; at < std::min(data.end, file.bytes());
         at += kPiece)
      if (pieces.empty() || at > pieces.back()) pieces.push_back(at);
  parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    thread_local std::vector<std::byte> piece;
    const std::uint64_t at = pieces[static_cast<std::size_t>(i)];
    piece.resize(std::min(kPiece, file.bytes() - at));
    file.read(at, piece);
    hash.add(at, piece);
  });
  return {file.bytes(), hash_text(hash.finish({})), {}};
}

WrittenFile written_text(std::string_view text) {
  FileHash hash(text.size());
  hash.add(0, std::as_bytes(std::span(text)));
  return {text.size(), hash_text(hash.finish({})), {}};
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string difference_from(const WrittenFile& written, const fs::path& path) {
  if (!written.bytes && written.hash.empty()) return {};  // the file may change
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "is missing";
  const std::uintmax_t bytes = fs::file_size(path, ignored);
  if (written.bytes && bytes != *written.bytes)
    return fmt::format("has {} bytes, {} were written", bytes, *written.bytes);
  if (!written.hash.empty() && written_file(path).hash != written.hash)
    return "has other bytes than were written: its hash differs";
  return {};
}

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

using namespace checkpoint;

void list_files(const std::filesystem::path& folder) try {
  WrittenFiles files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (const auto path = entry.path().lexically_relative(folder);
        entry.is_regular_file() && path != kFilesName)
      files[path.generic_string()] = written_file(entry.path());
  save_written_files(folder, files);
} catch (const std::filesystem::filesystem_error& e) {
  throw_io_error(e);
}

}  // namespace nvfp4
