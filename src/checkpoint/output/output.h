#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/formats/shard_writer.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

/// Where the bytes of a plan go: a folder of shards, or one file.
class Output {
 public:
  explicit Output(std::size_t shards) : done_(shards) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  /// Throws what open() would throw as things are now. Changes nothing.
  virtual void check() {}
  /// Makes room for the shards. Throws IoError, ValueError, FormatError, UnsupportedError.
  virtual void open() {}
  /// Whether open() may remove what was there.
  virtual bool replaces() const { return false; }
  /// Nothing is left to do.
  virtual bool complete() const { return false; }
  /// Shards that this process need not write: an earlier run has finished them, or they are of
  /// another rank.
  const std::vector<bool>& done() const { return done_; }
  /// Of the first kind.
  virtual int reused() const { return 0; }
  /// Whether the shard is another rank's to write.
  virtual bool is_of_another_rank(std::size_t) const { return false; }

  virtual std::unique_ptr<ShardWriter> open_shard(std::size_t shard) const = 0;
  /// The shard is whole. Takes note of it and of its errors: it may get its name now.
  virtual void before_commit(std::size_t, ShardWriter&, const std::vector<Outcome>&) {}
  /// Whether this process is to finish the output.
  virtual bool is_last() { return true; }
  /// What a shard's errors were that is done; false if nobody knows.
  virtual bool recall(std::size_t, std::vector<Outcome>&) const { return false; }
  /// Writes what is no shard, and says so in the report. `whole`: it knows every error.
  virtual void finish(QuantizeReport& /*report*/, bool /*whole*/) {}

  /// What its users should know, in the order in which it was found out.
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  std::vector<bool> done_;
  std::vector<std::string> warnings_;
};

/// As the plan's format has it. Touches nothing yet; the arguments must outlive it. Throws
/// UnsupportedError for ranks that would write one file, IoError.
std::unique_ptr<Output> make_output(const ModelFolder& model, const Plan& plan,
                                    const TransformOptions& options);

/// Throws IoError if the path is a link to what is not there: it would be replaced, or removed.
void require_no_dangling_link(const std::filesystem::path& output);

}  // namespace nvfp4::checkpoint
