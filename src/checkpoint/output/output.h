#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/formats/format.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// The output of a plan: a folder of shards, or one file.
class Output {
 public:
  explicit Output(std::size_t shards) : done_(shards) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  /// Throws the error that open() would throw now. Changes nothing.
  virtual void check() {}
  /// Prepares the output for the shards. Throws IoError, ValueError, FormatError, UnsupportedError.
  virtual void open() {}
  /// Reports whether open() may remove an existing output.
  virtual bool replaces() const { return false; }
  /// Reports whether nothing is left to do.
  virtual bool complete() const { return false; }
  /// Returns a flag for each shard. It is true if this process need not write the shard, because an
  /// earlier run has finished it or because it belongs to another rank.
  const std::vector<bool>& done() const { return done_; }
  /// Returns the number of shards that an earlier run has finished.
  virtual int reused() const { return 0; }
  /// Reports whether another rank writes the shard.
  virtual bool is_of_another_rank(std::size_t) const { return false; }

  virtual std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const = 0;
  /// Records a complete shard and its errors. After that the shard may get its final name.
  virtual void before_commit(std::size_t, ShardWriter&, const std::vector<Outcome>&) {}
  /// Reports whether this process must call finish().
  virtual bool is_last() { return true; }
  /// Copies the errors of a finished shard to the vector. Returns false if they are unknown.
  virtual bool recall(std::size_t, std::vector<Outcome>&) const { return false; }
  /// Writes the files other than shards and adds them to the report. `whole`: the report has every
  /// error.
  virtual void finish(QuantizeReport& /*report*/, bool /*whole*/) {}

  /// Returns the warnings for the user, the oldest first.
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  std::vector<bool> done_;
  std::vector<std::string> warnings_;
};

/// Creates the output for the plan's format. It changes no files yet. The arguments must outlive
/// the output. Throws IoError, or UnsupportedError for several ranks and a single file.
std::unique_ptr<Output> make_output(const ModelFolder& model, const Plan& plan,
                                    const TransformOptions& options);

/// Throws IoError if the path is a link whose target does not exist. A run would replace or remove
/// the link.
void require_no_dangling_link(const std::filesystem::path& output);

}  // namespace nvfp4::checkpoint
