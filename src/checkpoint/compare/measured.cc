#include "checkpoint/compare/measured.h"

#include <cmath>
#include <limits>

#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/source/content.h"
#include "core/require.h"
#include "nvfp4/checkpoint/options.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kVersionOfParts = 1;

}  // namespace

Measured::Measured(const SharedWork& shared, std::string what)
    : shared_(shared), what_(std::move(what)), stages_(nlohmann::json::object()) {
  require<ValueError>(shared.ranks >= 1 && shared.ranks <= kMaxRanks,
                      "ranks = {}, must be from 1 to {}", shared.ranks, kMaxRanks);
  require<ValueError>(shared.rank >= 0 && shared.rank < shared.ranks,
                      "rank = {}, must be from 0 to ranks - 1 = {}", shared.rank, shared.ranks - 1);
  require<ValueError>(shared.ranks == 1 || !shared.parts.empty(),
                      "ranks = {}, needs parts: a folder that all of them see", shared.ranks);
  require<ValueError>(shared.ranks > 1 || shared.parts.empty(),
                      "parts = {}, is for ranks, of which there is one", shared.parts.string());
  require_no_address(shared.parts);
}

std::vector<bool> Measured::mine(const std::vector<std::uint64_t>& sizes) const {
  std::vector<bool> mine(sizes.size(), !joined_);
  if (joined_ || !is_shared()) return mine;
  const std::vector<int> rank_of = share_out(sizes, shared_.ranks);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = rank_of[i] == shared_.rank;
  return mine;
}

void Measured::exchange(const std::string& stage, const std::string& identity,
                        nlohmann::json& items) {
  if (!is_shared()) return;
  if (!joined_) {
    stages_[stage] = {{"of", identity}, {"items", items}};
    return;
  }
  const auto found = stages_.find(stage);
  require<FormatError>(found != stages_.end() && (*found)["of"] == identity &&
                           (*found)["items"].size() == items.size(),
                       "{}: holds results for other files; hint: remove it",
                       shared_.parts.string());
  items = (*found)["items"];
  for (const nlohmann::json& item : items)
    require<FormatError>(!item.is_null(), "{}: a rank has not measured all of its share",
                         shared_.parts.string());
}

std::string Measured::identity_of(const std::vector<const LogicalTensor*>& weights) {
  std::uint64_t hash = fingerprint("");
  for (const LogicalTensor* t : weights)
    hash = fingerprint(fmt::format("{} {} {} {}", t->name, t->elements(),
                                   t->data.file->file_bytes(), t->data.file->modified_ns()),
                       hash);
  return hex(hash);
}

fs::path Measured::file_of(int rank) const {
  return shared_.parts / fmt::format("nvfp4.{}-rank-{}-of-{}.json", what_, rank, shared_.ranks);
}

std::vector<int> Measured::join() try {
  fs::create_directories(shared_.parts);
  const PartialTag tag(shared_.parts);
  safetensors::write_file_atomically(
      file_of(shared_.rank),
      nlohmann::json{{"version", kVersionOfParts}, {"stages", stages_}}.dump() + "\n");
  std::vector<int> missing;
  std::vector<nlohmann::json> stages;
  for (int rank = 0; rank < shared_.ranks; ++rank) {
    const fs::path path = file_of(rank);
    if (!fs::exists(path)) {
      missing.push_back(rank);
      continue;
    }
    nlohmann::json json = parse_json<nlohmann::json>(read_model_text(path), path.string());
    require<FormatError>(
        json.is_object() && json.value("version", nlohmann::json()) == kVersionOfParts &&
            json.value("stages", nlohmann::json()).is_object(),
        "{}: is not a results file of this version of nvfp4; hint: remove it", path.string());
    stages.push_back(std::move(json["stages"]));
  }
  if (!missing.empty()) return missing;
  for (std::size_t rank = 0; rank < stages.size(); ++rank)
    take(static_cast<int>(rank), stages[rank]);
  joined_ = true;
  return missing;
} catch (const fs::filesystem_error& e) {
  throw_io_error(e);
}

void Measured::take(int rank, const nlohmann::json& stages) {
  const std::string file = file_of(rank).string();
  require<FormatError>(stages.size() == stages_.size(),
                       "{}: holds results with other options; hint: remove it", file);
  for (auto& [name, stage] : stages_.items()) {
    const nlohmann::json other = stages.value(name, nlohmann::json());
    const bool same = other.is_object() && other.value("of", nlohmann::json()) == stage["of"];
    const nlohmann::json items = same ? other.value("items", nlohmann::json()) : nlohmann::json();
    require<FormatError>(items.is_array() && items.size() == stage["items"].size(),
                         "{}: holds results for other files; hint: remove it", file);
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!items[i].is_null()) stage["items"][i] = items[i];
  }
}

nlohmann::json json_number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

double number_from_json(const nlohmann::json& json, const std::string& file) {
  if (json.is_number()) return json.get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  throw FormatError(fmt::format("{}: {} is not a measured number", file, json.dump()));
}

}  // namespace nvfp4::checkpoint

namespace nvfp4 {

std::string missing_to_json(const std::vector<int>& missing) {
  return checkpoint::dump_pretty({{"missing_ranks", missing}});
}

}  // namespace nvfp4
