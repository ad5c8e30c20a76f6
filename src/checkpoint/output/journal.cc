#include <algorithm>
#include <cerrno>

#include "checkpoint/base/option_values.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/source/content.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/runtime.h"
#include "ops/gram_library.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {

namespace fs = std::filesystem;
namespace {

constexpr int kVersion = 4;

Json runs_of(const Outcome& outcome) {
  Json runs = Json::array();
  for (const ChosenRows& run : outcome.chosen_rows) runs.push_back({run.candidate, run.rows});
  return runs;
}

bool add_runs(const Json& runs, Outcome& to) {
  to.chosen_rows.clear();
  if (!runs.is_array()) return false;
  for (const Json& run : runs) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_number_unsigned() ||
        !run[1].is_number_unsigned() ||
        run[0].get<std::uint64_t>() >= std::uint64_t{kGptqCandidates})
      return false;
    to.add_chosen({run[0].get<std::size_t>(), run[1].get<std::int64_t>()});
  }
  return true;
}

Json input_of(const ModelFolder& model) {
  Json files = Json::object();
  for (std::size_t f = 0; f < model.files.size(); ++f) {
    const TensorFile& file = model.files[f];
    std::uint64_t hash = fingerprint("");
    for (const auto& t : file.tensors()) {
      hash = fingerprint(t.name, hash);
      hash = fingerprint(
          fmt::format("{} {} {}", safetensors::dtype_name(t.dtype), t.begin, t.bytes), hash);
    }
    files[model.file_names[f]] = {
        {"bytes", file.file_bytes()}, {"modified_ns", file.modified_ns()}, {"tensors", hex(hash)}};
  }
  return files;
}

Json options_of(const ModelFolder& model, const TransformOptions& options, const Plan& plan) {
  Json json = {{"program", std::string("nvfp4 ") + version()},
               {"task", static_cast<int>(options.task)},
               {"plain", safetensors::dtype_name(options.plain)},
               {"variant", options.variant}};
  Json known = known_options(plan, model, options);
  if (options.layers != nullptr) known["recipe"] = hex(fingerprint(options.layers->text));
  options::record(json, kQuantizeOptions, options, Effect::form, known);
  if (plan.method->needs == Needs::gram)
    if (const std::string by = gram_library(options.device).name; !by.empty()) json["factors"] = by;
  if (options.ranks > 1) json["ranks"] = options.ranks;
  return json;
}

/// Returns the size and fingerprint that identify the file of a finished shard.
Json identity_of(const fs::path& path) {
  const TensorFile file = TensorFile::open(path);
  return {{"bytes", file.file_bytes()}, {"content", hex(content_of(file))}};
}

/// Returns the same for a shard that was just written. It does not parse the header, which would
/// take a kilobyte for each tensor.
Json identity_of(const PlannedShard& shard, const fs::path& path) {
  if (path.string().find(".safetensors") == std::string::npos) return identity_of(path);
  const InputFile file(path);
  const std::uint64_t content = content_of(
      file, shard.specs.size(), [&](std::size_t i) { return shard.specs[i]; }, shard.metadata);
  return {{"bytes", file.bytes()}, {"content", hex(content)}};
}

Json parse_journal(std::string_view text, const std::string& file) {
  Json json = parse_json(text.substr(0, text.find('\n')), file);
  require<FormatError>(json.is_object() && json.value("version", Json()) == kVersion,
                       "{}: not of this version of nvfp4; hint: --overwrite replaces the output",
                       file);
  return json;
}

/// Describes the first member that differs between the objects. Returns "" if none does.
std::string difference(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key)) return fmt::format("{} was absent, now {}", key, dump_line(value));
    if (before[key] != value)
      return fmt::format("{} was {}, now {}", key, dump_line(before[key]), dump_line(value));
  }
  for (const auto& [key, value] : before.items())
    if (!now.contains(key)) return fmt::format("{} was {}, now absent", key, dump_line(value));
  return {};
}

}  // namespace

Journal::Journal(const ModelFolder& model, const TransformOptions& options, const Plan& plan,
                 const WrittenFiles& files)
    : json_({{"version", kVersion},
             {"state", "writing"},
             {"options", options_of(model, options, plan)},
             {"input", input_of(model)},
             {"config", hex(fingerprint(plan.config_json))},
             {"files", json_of(files)}}) {}

void Journal::resume(const std::string& text, const std::string& file) {
  const Json before = parse_journal(text, file);
  for (const char* part : {"options", "input"}) {
    const Json old = before.value(part, Json());
    require<FormatError>(old.is_object(), "{}: {} is missing", file, part);
    const std::string changed = difference(old, json_[part]);
    require<ValueError>(changed.empty(), ErrorCode::resume_differs,
                        "--resume: {} of the interrupted run differ: {}", part, changed);
  }
  require<ValueError>(before.value("config", Json()) == json_["config"], ErrorCode::resume_differs,
                      "--resume: config.json of the interrupted run differs");
  json_["files"].update(json_of(written_files_of(before.value("files", Json()), file)));
  // The last line has no end if the process died while it wrote the line.
  for (std::size_t at = text.find('\n') + 1, end; (end = text.find('\n', at)) != text.npos;
       at = end + 1) {
    const Json line = parse_json(std::string_view(text).substr(at, end - at), file);
    const Json shard = line.is_object() ? line.value("shard", Json()) : Json();
    require<FormatError>(shard.is_string() && line.contains("file") && line.contains("errors"),
                         "{}: a line of it is no record of a shard", file);
    records_[shard.get<std::string>()] = {line["file"], dump_line(line["errors"])};
  }
}

std::string Journal::line_of(const std::string& shard, const Record& record) {
  return fmt::format("{{\"shard\":{},\"file\":{},\"errors\":{}}}\n", dump_line(Json(shard)),
                     dump_line(record.identity), record.errors);
}

std::string Journal::text() const { return dump_line(json_) + "\n"; }

void Journal::save(const fs::path& path, const std::set<std::string>& shards) const {
  PartialFile file(path);
  std::uint64_t at = 0;
  const auto put = [&](const std::string& line) {  // a line may be long
    file.write_at(at, std::as_bytes(std::span(line)));
    at += line.size();
  };
  put(text());
  for (const auto& [shard, record] : records_)
    if (shards.contains(shard)) put(line_of(shard, record));
  file.commit();
}

void Journal::finish(const fs::path& folder) {
  fs::remove(folder / kJournalName);
  sync_folder(folder);
}

bool Journal::is_clearing(const std::string& text, const std::string& file) {
  return parse_journal(text, file).value("state", Json()) == "clearing";
}

void Journal::save_clearing(const fs::path& folder, const std::vector<fs::path>& own) {
  WrittenFiles files;
  for (const fs::path& path : own) files[path.generic_string()];
  const Json json = {{"version", kVersion}, {"state", "clearing"}, {"files", json_of(files)}};
  safetensors::write_file_atomically(folder / kJournalName, dump_line(json) + "\n");
}

void Journal::record(const PlannedShard& shard, const fs::path& path, const std::string& hash,
                     const std::vector<Outcome>& all) {
  std::string errors = "[";
  constexpr std::size_t kOfTensor = 80;  // approximate number of bytes
  errors.reserve(kOfTensor * shard.tensors);
  for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t) {
    if (errors.size() > 1) errors += ',';
    Json entry = {all[t].error.squared_error,
                  all[t].error.squared_norm,
                  all[t].clamped_blocks,
                  all[t].clamped,
                  runs_of(all[t]),
                  all[t].output.mse,
                  all[t].output.kept};
    if (all[t].factored != GramFactor::By::nobody)
      entry.push_back(static_cast<unsigned>(all[t].factored));
    errors += dump_line(entry);
  }
  errors += ']';
  Json identity = identity_of(shard, path);
  identity["xxh3"] = hash;
  records_[shard.file] = {std::move(identity), std::move(errors)};
}

void Journal::append(const PlannedShard& shard, const fs::path& file) const {
  append_to_file(file, line_of(shard.file, records_.at(shard.file)));
}

WrittenFiles Journal::files() const { return written_files_of(json_["files"], kJournalName); }

bool Journal::names(const PlannedShard& shard) const { return records_.contains(shard.file); }

WrittenFile Journal::written(const PlannedShard& shard) const {
  const auto record = records_.find(shard.file);
  return record == records_.end() ? WrittenFile() : written_file_of(record->second.identity);
}

bool Journal::is_recorded(const PlannedShard& shard, const fs::path& path, bool whole) const {
  const auto record = records_.find(shard.file);
  if (record == records_.end() || !fs::is_regular_file(fs::symlink_status(path))) return false;
  try {
    Json now = identity_of(path);
    now["xxh3"] = whole ? written_file(path).hash : written(shard).hash;
    return record->second.identity == now;
  } catch (const FormatError&) {
    return false;
  }
}

bool Journal::recall(const PlannedShard& shard, std::vector<Outcome>& all) const {
  const auto record = records_.find(shard.file);
  if (record == records_.end()) return false;
  const Json errors = parse_json(record->second.errors, kJournalName);
  if (!errors.is_array() || errors.size() != shard.tensors) return false;
  for (std::size_t i = 0; i < shard.tensors; ++i) {
    const Json& entry = errors[i];
    if (!entry.is_array() || entry.size() < 7 || entry.size() > 8 || !entry[3].is_array())
      return false;
    // An infinite sum is stored as null.
    Outcome& outcome = all[shard.first_tensor + i];
    QuantizationError& error = outcome.error;
    const auto number = [&](std::size_t at) {
      return entry[at].is_number() ? entry[at].get<double>() : 0;
    };
    error = {number(0), number(1)};
    outcome.output = {number(5), number(6)};
    constexpr auto kLast = static_cast<std::uint64_t>(GramFactor::By::library);
    const std::uint64_t by =
        entry.size() == 8 && entry[7].is_number_unsigned() ? entry[7].get<std::uint64_t>() : 0;
    outcome.factored = static_cast<GramFactor::By>(std::min(by, kLast));
    if (!add_runs(entry[4], outcome)) return false;
    outcome.clamped_blocks = entry[2].is_number_unsigned() ? entry[2].get<std::uint64_t>() : 0;
    outcome.clamped.clear();
    for (const Json& block : entry[3])
      if (block.is_number_unsigned()) outcome.clamped.push_back(block.get<std::int64_t>());
  }
  return true;
}

std::vector<int> rank_of_shards(const Plan& plan, int ranks) {
  std::vector<std::uint64_t> bytes(plan.shards.size());
  for (const PlannedTensor& t : plan.tensors) bytes[t.shard] += t.bytes_before;
  return share_out(bytes, ranks);
}

bool FileLock::take(const fs::path& path) {
  for (;;) {
    Descriptor fd = platform::open(path, platform::Open::lock);
    if (fd.get() < 0) throw_io_error(path, "open", errno);
    if (!platform::lock(fd.get())) {
      if (errno == EWOULDBLOCK) return false;
      throw_io_error(path, "lock, which ranks need,", errno);
    }
    const auto held = platform::status_of(fd.get());
    if (!held) throw_io_error(path, "read the status of", errno);
    // The process that finished the output may have removed the file in between.
    const auto named = platform::status_of(path);
    if (!named || held->number != named->number || held->volume != named->volume) continue;
    fd_ = std::move(fd);
    return true;
  }
}

fs::path RankFiles::record_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.json", kRankPrefix, rank, ranks_);
}

fs::path RankFiles::lock_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.lock", kRankPrefix, rank, ranks_);
}

fs::path RankFiles::draft_of(int rank) const {
  return folder_ / fmt::format("{}{}-of-{}.new", kRankPrefix, rank, ranks_);
}

std::vector<fs::path> RankFiles::records() const {
  std::vector<fs::path> there;
  for (int rank = 0; rank < ranks_; ++rank)
    if (const fs::path path = record_of(rank); fs::exists(path)) there.push_back(path);
  return there;
}

void RankFiles::create(const fs::path& path, const std::string& content) const {
  const fs::path draft = draft_of(rank_);
  safetensors::write_file_atomically(draft, content);
  const bool linked = platform::link_file(draft, path);
  const int error = errno;
  fs::remove(draft);
  if (!linked && error != EEXIST) throw_io_error(path, "make a link, which ranks need, as", error);
  sync_folder(folder_);
}

void RankFiles::remove_records() const {
  if (ranks_ == 1) return;
  std::set<std::string> names;
  for (int rank = 0; rank < ranks_; ++rank)
    for (const fs::path& path : {record_of(rank), draft_of(rank)}) {
      fs::remove(path);
      names.insert(path.filename().string());
    }
  remove_partials(folder_, names);
}

void RankFiles::remove_locks() const {
  if (ranks_ == 1) return;
  for (int rank = 0; rank < ranks_; ++rank) fs::remove(lock_of(rank));
  fs::remove(finish_lock());
}

}  // namespace nvfp4::checkpoint
