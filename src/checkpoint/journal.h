#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/plan.h"

/// nvfp4.partial.json: what an unfinished output folder is going to be. While it is there the
/// folder is incomplete; it is written before anything else and removed last.
namespace nvfp4::checkpoint {

class Journal {
 public:
  /// For a new run.
  Journal(const ModelFolder& model, const TransformOptions& options, const Plan& plan);

  /// Of the options and of the input's names, shapes and a sample of its values: what a finished
  /// shard carries to tell which run wrote it. Does not depend on folders or times of files.
  const std::string& run() const { return run_; }

  /// Takes over what an earlier run has done. Throws ValueError that names the first option or
  /// input file that differs, FormatError for a journal that cannot be read.
  void resume(const std::string& text, const std::string& file);

  /// Writes it to the folder, atomically.
  void save(const std::filesystem::path& folder) const;
  /// Written before an old output is cleared: a resumed run goes on with that and then starts.
  static void save_clearing(const std::filesystem::path& folder);
  /// Throws FormatError for a journal that cannot be read.
  static bool is_clearing(const std::string& text, const std::string& file);

  /// A shard's errors, tensor by tensor, so that the report of a resumed run is whole.
  void record(const PlannedShard& shard, const std::vector<Outcome>& all);
  /// False if the shard was not recorded.
  bool recall(const PlannedShard& shard, std::vector<Outcome>& all) const;

 private:
  std::string run_;
  nlohmann::ordered_json json_;
};

}  // namespace nvfp4::checkpoint
