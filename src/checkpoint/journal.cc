#include "checkpoint/journal.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "checkpoint/json_text.h"
#include "checkpoint/text_file.h"
#include "core/require.h"
#include "nvfp4/runtime.h"

namespace nvfp4::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

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
    files[model.file_names[f]] = {{"bytes", file.file_bytes()},
                                  {"modified_ns", file.modified_ns()},
                                  {"tensors", fmt::format("{:016x}", hash)}};
  }
  return files;
}

Json options_of(const TransformOptions& options, const Plan& plan) {
  Json json = {{"program", std::string("nvfp4 ") + version()},
               {"scheme", options.scheme == Scheme::nvfp4 ? "nvfp4" : "nvfp4a16"},
               {"task", static_cast<int>(options.task)},
               {"format", options.format},
               {"quantizer", quantizer_name(options.quantizer)},
               {"ignore", options.ignore},
               {"include", options.include},
               {"fuse", options.fuse},
               {"input_amax", nullptr}};
  if (plan.input_amax_fingerprint)
    json["input_amax"] = fmt::format("{:016x}", *plan.input_amax_fingerprint);
  return json;
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// Times of files are left out, so that the same model gives the same bytes anywhere. Some values
/// of each tensor instead: models of one architecture differ in nothing else.
std::uint64_t content_of(const ModelFolder& model) {
  constexpr std::uint64_t kSample = 64;
  std::array<std::byte, kSample> sample;
  std::uint64_t hash = fingerprint("");
  for (std::size_t f = 0; f < model.files.size(); ++f) {
    const TensorFile& file = model.files[f];
    hash = fingerprint(fmt::format("{} {}", model.file_names[f], file.file_bytes()), hash);
    for (const auto& t : file.tensors()) {
      hash = fingerprint(t.name, hash);
      hash = fingerprint(fmt::format("{} {} {}", safetensors::dtype_name(t.dtype), t.begin,
                                     fmt::join(t.shape, ",")),
                         hash);
      const std::uint64_t bytes = std::min(t.bytes, kSample);
      file.read(t, (t.bytes - bytes) / 2, std::span(sample.data(), bytes));
      hash = fingerprint({reinterpret_cast<const char*>(sample.data()), bytes}, hash);
    }
  }
  return hash;
}

Json parse_journal(const std::string& text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    throw FormatError(fmt::format("{}: {}", file, e.what()));
  }
  require<FormatError>(json.is_object() && json.value("version", Json()) == kVersion,
                       "{}: not a journal of this version", file);
  return json;
}

/// The first member that is not the same in both objects.
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

Journal::Journal(const ModelFolder& model, const TransformOptions& options, const Plan& plan)
    : json_({{"version", kVersion},
             {"state", "writing"},
             {"options", options_of(options, plan)},
             {"input", input_of(model)},
             {"config", fmt::format("{:016x}", fingerprint(plan.config_json))},
             {"shards", Json::object()}}) {
  run_ = hex(fingerprint(dump_line(json_["options"]) + plan.config_json, content_of(model)));
}

void Journal::resume(const std::string& text, const std::string& file) {
  const Json before = parse_journal(text, file);
  for (const char* part : {"options", "input"}) {
    const Json old = before.value(part, Json());
    require<FormatError>(old.is_object(), "{}: {} is missing", file, part);
    const std::string changed = difference(old, json_[part]);
    require<ValueError>(changed.empty(), "--resume: {} of the interrupted run differ: {}", part,
                        changed);
  }
  require<ValueError>(before.value("config", Json()) == json_["config"],
                      "--resume: config.json of the interrupted run differs");
  require<FormatError>(before.value("shards", Json()).is_object(), "{}: shards is missing", file);
  json_["shards"] = before["shards"];
}

void Journal::save(const std::filesystem::path& folder) const {
  safetensors::write_file_atomically(folder / kJournalName, dump_line(json_) + "\n");
}

bool Journal::is_clearing(const std::string& text, const std::string& file) {
  return parse_journal(text, file).value("state", Json()) == "clearing";
}

void Journal::save_clearing(const std::filesystem::path& folder) {
  const Json json = {{"version", kVersion}, {"state", "clearing"}};
  safetensors::write_file_atomically(folder / kJournalName, dump_line(json) + "\n");
}

void Journal::record(const PlannedShard& shard, const std::vector<Outcome>& all) {
  Json errors = Json::array();
  for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t)
    errors.push_back({all[t].error.squared_error, all[t].error.squared_norm, all[t].clamped_blocks,
                      all[t].clamped});
  json_["shards"][shard.file] = std::move(errors);
}

bool Journal::recall(const PlannedShard& shard, std::vector<Outcome>& all) const {
  const auto errors = json_["shards"].find(shard.file);
  if (errors == json_["shards"].end() || !errors->is_array() || errors->size() != shard.tensors)
    return false;
  for (std::size_t i = 0; i < shard.tensors; ++i) {
    const Json& entry = (*errors)[i];
    if (!entry.is_array() || entry.size() != 4 || !entry[3].is_array()) return false;
    // An infinite sum is stored as null.
    Outcome& outcome = all[shard.first_tensor + i];
    QuantizationError& error = outcome.error;
    error.squared_error = entry[0].is_number() ? entry[0].get<double>() : 0;
    error.squared_norm = entry[1].is_number() ? entry[1].get<double>() : 0;
    outcome.clamped_blocks = entry[2].is_number_unsigned() ? entry[2].get<std::uint64_t>() : 0;
    outcome.clamped.clear();
    for (const Json& block : entry[3])
      if (block.is_number_unsigned()) outcome.clamped.push_back(block.get<std::int64_t>());
  }
  return true;
}

}  // namespace nvfp4::checkpoint
