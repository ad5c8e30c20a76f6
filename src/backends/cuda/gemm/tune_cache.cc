#include "backends/cuda/gemm/tune_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "platform/process.h"

namespace nvfp4::cuda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kForm = "nvfp4 gemm tuning";
constexpr int kVersion = 1;
constexpr std::size_t kMostBytes = std::size_t{8} << 20;
constexpr std::size_t kMostEntries = 10000, kMostText = 500, kMostParts = 2;
constexpr int kMostDepth = 5;  ///< depth of a member of a part

const std::string* text_of(const json& j, const char* name) {
  const auto found = j.find(name);
  if (found == j.end()) return nullptr;
  const auto* text = found->get_ptr<const std::string*>();
  return text != nullptr && text->size() <= kMostText ? text : nullptr;
}

bool parse_part(const json& j, NamedPart& part) {
  if (!j.is_object()) return false;
  const std::string* kernel = text_of(j, "kernel");
  const auto rows = j.find("rows");
  if (kernel == nullptr || rows == j.end() || !rows->is_number_unsigned()) return false;
  const auto count = rows->get<std::uint64_t>();
  if (count < 1 || count > std::uint64_t{1} << 31) return false;
  part = {static_cast<std::int64_t>(count), *kernel};
  return true;
}

bool parse_entry(const json& j, TuneEntry& entry) {
  if (!j.is_object()) return false;
  for (const auto& [name, field] : {std::pair("gpu", &TuneKey::gpu),
                                    {"driver", &TuneKey::driver},
                                    {"library", &TuneKey::library},
                                    {"problem", &TuneKey::problem}}) {
    const std::string* text = text_of(j, name);
    if (text == nullptr) return false;
    entry.key.*field = *text;
  }
  const auto time = j.find("microseconds");
  if (time == j.end() || !time->is_number()) return false;
  entry.microseconds = time->get<double>();
  if (!std::isfinite(entry.microseconds) || entry.microseconds <= 0) return false;
  const auto parts = j.find("parts");
  if (parts == j.end() || !parts->is_array() || parts->empty() || parts->size() > kMostParts)
    return false;
  for (const json& p : *parts)
    if (!parse_part(p, entry.parts.emplace_back())) return false;
  return true;
}

TuneFile refused(std::string note, bool is_ours) { return {{}, std::move(note), is_ours}; }

}  // namespace

std::string problem_key(const GemmDescription& d) {
  constexpr const char* kForms[] = {"dense", "grouped", "routed", "every_group"};
  constexpr const char* kEpilogues[] = {"none", "swiglu", "swiglu_quantize"};
  const DType x = d.scheme == Scheme::nvfp4 ? DType::bf16 : d.x;
  std::string key = fmt::format(
      "{} m {} n {} k {} x {} out {}", kForms[static_cast<int>(d.form)], d.m, d.n, d.k,
      dtype_name(x), d.epilogue == Epilogue::swiglu_quantize ? "nvfp4" : dtype_name(d.out));
  if (d.form != GemmForm::dense) key += fmt::format(" groups {}", d.groups);
  if (d.form == GemmForm::routed) key += fmt::format(" top_k {}", d.top_k);
  if (d.shared_x) key += " shared_x";
  if (d.epilogue != Epilogue::none)
    key += fmt::format(" epilogue {}", kEpilogues[static_cast<int>(d.epilogue)]);
  if (d.batch_invariant) key += " batch_invariant";
  if (d.max_workspace_bytes > 0) key += fmt::format(" workspace {}", d.max_workspace_bytes);
  return key;
}

fs::path tune_file_path(const std::function<const char*(const char*)>& get) {
  const auto value = [&](const char* name) {
    const char* text = get(name);
    return fs::path(text == nullptr ? "" : text);
  };
  if (const fs::path own = value("NVFP4_TUNE_CACHE"); !own.empty()) return own;
  // The XDG specification ignores relative paths.
  if (const fs::path cache = value("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "nvfp4" / "gemm.json";
  if (const fs::path home = value(platform::kHomeVariable); home.is_absolute())
    return home / ".cache" / "nvfp4" / "gemm.json";
  return {};
}

TuneFile parse_tune_file(std::string_view text) {
  if (text.empty()) return {};
  const json j = json::parse(
      text, [](int depth, json::parse_event_t, const json&) { return depth <= kMostDepth; }, false);
  if (!j.is_object()) return refused("it is not JSON of an object", false);
  const std::string* form = text_of(j, "form");
  if (form == nullptr || *form != kForm)
    return refused(fmt::format("its \"form\" is not \"{}\"", kForm), false);
  if (const auto version = j.find("version"); version == j.end() || *version != kVersion)
    return refused(fmt::format("its \"version\" is not {}", kVersion), true);
  const auto entries = j.find("entries");
  if (entries == j.end() || !entries->is_array())
    return refused("it has no list of \"entries\"", true);
  TuneFile file;
  std::size_t bad = 0;
  for (const json& e : *entries) {
    TuneEntry entry;
    if (file.entries.size() < kMostEntries && parse_entry(e, entry))
      file.entries.push_back(std::move(entry));
    else
      ++bad;
  }
  if (bad > 0) file.note = fmt::format("{} of its {} entries are broken", bad, entries->size());
  return file;
}

std::string tune_file_text(std::span<const TuneEntry> entries) {
  std::string list;
  for (const TuneEntry& e : entries) {
    json parts = json::array();
    for (const NamedPart& p : e.parts) parts.push_back({{"rows", p.rows}, {"kernel", p.kernel}});
    // Each entry is one line.
    const json j = {{"gpu", e.key.gpu},         {"driver", e.key.driver},
                    {"library", e.key.library}, {"problem", e.key.problem},
                    {"parts", parts},           {"microseconds", e.microseconds}};
    list += fmt::format("{}\n  {}", list.empty() ? "" : ",",
                        j.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return fmt::format("{{\n \"form\": \"{}\",\n \"version\": {},\n \"entries\": [{}\n ]\n}}\n",
                     kForm, kVersion, list);
}

TuneFile read_tune_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return {};
  if (!fs::is_regular_file(status))
    return refused(error ? error.message() : "it is not a file", false);
  // Another process may replace the file meanwhile, so it is opened once and read whole.
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.eof()) return refused(in ? "it is too large" : "it cannot be read", false);
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_tune_file(text);
}

std::string keep_tune_entry(const fs::path& path, const TuneEntry& entry) {
  TuneFile file = read_tune_file(path);
  if (!file.is_ours) return file.note;
  std::erase_if(file.entries, [&](const TuneEntry& e) { return e.key == entry.key; });
  file.entries.push_back(entry);
  if (file.entries.size() > kMostEntries) file.entries.erase(file.entries.begin());
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return fmt::format("its folder cannot be made: {}", error.message());
  static std::atomic<int> count = 0;
  fs::path partial = path;
  partial += fmt::format(".{}-{}.partial", platform::process_number(), count++);
  std::ofstream out(partial, std::ios::binary);
  out << tune_file_text(file.entries);
  out.close();
  if (out) fs::rename(partial, path, error);
  if (out && !error) return "";
  std::error_code ignored;
  fs::remove(partial, ignored);
  return error ? fmt::format("it cannot be written: {}", error.message()) : "it cannot be written";
}

std::string driver_version(std::string_view proc, int cuda) {
  const std::string text = fmt::format("CUDA {}.{}", cuda / 1000, cuda % 1000 / 10);
  constexpr std::string_view kDigits = "0123456789.";
  proc = proc.substr(0, proc.find('\n'));
  // The version is the only word of the first line that consists of digits and points.
  while (!proc.empty()) {
    const std::string_view word = proc.substr(0, proc.find(' '));
    if (word.find('.') != word.npos && word.find_first_not_of(kDigits) == word.npos)
      return fmt::format("{}, {}", word, text);
    proc.remove_prefix(std::min(proc.size(), word.size() + 1));
  }
  return text;
}

}  // namespace nvfp4::cuda
