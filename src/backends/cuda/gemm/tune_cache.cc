#include "backends/cuda/gemm/tune_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>

#include "platform/process.h"

namespace nvfp4::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kForm = "nvfp4 gemm tuning ", kVersion = "1";
constexpr std::size_t kMostBytes = std::size_t{8} << 20;
constexpr std::size_t kMostEntries = 10000, kMostText = 500, kMostParts = 2;
constexpr std::string TuneKey::*kTexts[] = {&TuneKey::gpu, &TuneKey::driver, &TuneKey::library,
                                            &TuneKey::problem};
constexpr std::size_t kFirstPart = std::size(kTexts) + 1;  ///< field; the time is before it

/// Returns the number that all of `text` is.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

/// Removes the text up to `end` from the front of `text` and returns it.
std::string_view take_until(std::string_view& text, char end) {
  const std::string_view taken = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), taken.size() + 1));
  return taken;
}

std::optional<TuneEntry> parse_entry(std::string_view line) {
  std::vector<std::string_view> fields;
  const auto tabs = static_cast<std::size_t>(std::ranges::count(line, '\t'));
  if (tabs + 1 != kFirstPart + 2 && tabs + 1 != kFirstPart + 2 * kMostParts) return {};
  for (std::size_t i = 0; i <= tabs; ++i) {
    fields.push_back(take_until(line, '\t'));
    if (fields.back().empty() || fields.back().size() > kMostText) return {};
  }
  TuneEntry entry;
  for (std::size_t i = 0; i < std::size(kTexts); ++i) entry.key.*kTexts[i] = fields[i];
  const auto time = number_of<double>(fields[kFirstPart - 1]);
  if (!time || !std::isfinite(*time) || *time <= 0) return {};
  entry.microseconds = *time;
  for (std::size_t i = kFirstPart; i < fields.size(); i += 2) {
    const auto rows = number_of<std::int64_t>(fields[i]);
    if (!rows || *rows < 1 || *rows > std::int64_t{1} << 31) return {};
    entry.parts.push_back({*rows, std::string(fields[i + 1])});
  }
  return entry;
}

/// Returns the text as a field of a line: separators become spaces.
std::string field_of(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

TuneFile refused(std::string note, bool is_ours) { return {{}, std::move(note), is_ours}; }

}  // namespace

std::string problem_key(const GemmDescription& d) {
  constexpr const char* kForms[] = {"dense", "grouped", "routed", "every_group"};
  constexpr const char* kEpilogues[] = {"none", "swiglu", "swiglu_quantize"};
  const DType x = d.scheme == Scheme::w4a4 ? DType::bf16 : d.x;
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
    return cache / "nvfp4" / "gemm.txt";
  if (const fs::path home = value(platform::kHomeVariable); home.is_absolute())
    return home / ".cache" / "nvfp4" / "gemm.txt";
  return {};
}

TuneFile parse_tune_file(std::string_view text) {
  if (text.empty()) return {};
  const std::string_view first = take_until(text, '\n');
  if (!first.starts_with(kForm))
    return refused(fmt::format("its first line is not \"{}{}\"", kForm, kVersion), false);
  if (first.substr(kForm.size()) != kVersion)
    return refused(fmt::format("its version is not {}", kVersion), true);
  TuneFile file;
  std::size_t count = 0;
  for (; !text.empty(); ++count) {
    const bool whole = text.find('\n') != text.npos;
    std::optional<TuneEntry> entry = parse_entry(take_until(text, '\n'));
    if (whole && entry && file.entries.size() < kMostEntries)
      file.entries.push_back(std::move(*entry));
  }
  if (const std::size_t bad = count - file.entries.size(); bad > 0)
    file.note = fmt::format("{} of its {} entries are broken", bad, count);
  return file;
}

std::string tune_file_text(std::span<const TuneEntry> entries) {
  std::string text = fmt::format("{}{}\n", kForm, kVersion);
  for (const TuneEntry& e : entries) {
    for (const auto field : kTexts) text += field_of(e.key.*field) + '\t';
    text += fmt::format("{}", e.microseconds);
    for (const NamedPart& p : e.parts) text += fmt::format("\t{}\t{}", p.rows, field_of(p.kernel));
    text += '\n';
  }
  return text;
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
  partial += fmt::format(".{}-{}.partial", platform::process_id(), count++);
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
