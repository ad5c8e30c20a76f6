#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/compare/shared_work.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/parallel_for.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/options.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {

/// Measurements that ranks share. Each rank runs the work twice: first it measures its share, then,
/// if join() finds all files, it reads the results of all. So the last rank has the result of a
/// single process.
class Measured {
 public:
  /// `what` is a part of the files' names. Throws ValueError for an invalid rank.
  Measured(const SharedWork& shared, std::string what);

  bool is_shared() const { return shared_.ranks > 1; }
  /// Reports for each item whether this rank measures it now. `sizes` balances the shares.
  std::vector<bool> mine(const std::vector<std::uint64_t>& sizes) const;
  /// Stores `items` before join(), with null for items of other ranks. After join() it replaces
  /// them by those of all ranks. `identity` identifies what was measured. Throws FormatError for a
  /// file with another identity.
  void exchange(const std::string& stage, const std::string& identity, nlohmann::json& items);
  /// Exchanges one value for each of these weights, so that `values` has those of all ranks.
  template <class T>
  void exchange(const std::string& stage, const std::vector<const LogicalTensor*>& weights,
                const std::vector<bool>& mine, std::vector<T>& values) {
    if (!is_shared()) return;
    nlohmann::json items(values.size(), nullptr);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (mine[i]) items[i] = values[i];
    exchange(stage, identity_of(weights), items);
    try {
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!items[i].is_null()) items[i].get_to(values[i]);
    } catch (const nlohmann::json::exception&) {
      throw FormatError("the " + stage + " that a rank counted are malformed");
    }
  }
  /// Writes this rank's file. Returns the ranks without a file, which are still working. Throws
  /// IoError, FormatError.
  std::vector<int> join();

  /// Returns a hash that identifies the weights in the files of ranks.
  static std::string identity_of(const std::vector<const LogicalTensor*>& weights);

 private:
  std::filesystem::path file_of(int rank) const;
  void take(int rank, const nlohmann::json& stages);

  SharedWork shared_;
  std::string what_;
  bool joined_ = false;
  nlohmann::json stages_;  ///< name -> {"of", "items"}
};

/// A part of an item that one thread measures. `bytes` counts for the progress.
struct MeasuredPart {
  std::size_t item = 0;
  std::int64_t begin = 0, count = 0;
  std::uint64_t bytes = 0;
};

/// Measures parts with all threads: `measure` returns the result of one. `add` takes the results,
/// one at a time, with the indices of their parts. `name_of` returns the name of an item.
template <class Part, class Name, class Measure, class Add>
void measure_parts(const std::vector<Part>& parts, const Name& name_of, const Measure& measure,
                   const Add& add, const std::function<void(const Progress&)>& on_progress) {
  std::map<std::size_t, std::int64_t> left;  // parts of each item
  Progress progress;
  for (const Part& part : parts) {
    ++left[part.item];
    progress.bytes_total += part.bytes;
  }
  progress.tensors_total = std::ssize(left);
  std::mutex mutex;
  parallel_for(std::ssize(parts), [&](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    const Part& part = parts[index];
    auto result = measure(part);
    const std::lock_guard lock(mutex);
    add(index, std::move(result));
    progress.tensor = name_of(part.item);
    progress.tensors_done += --left[part.item] == 0;
    progress.bytes_done += part.bytes;
    if (on_progress) on_progress(progress);
  });
}

/// Returns a number as JSON. NaN and infinities, which JSON lacks, become strings.
nlohmann::json json_number(double x);
/// Returns the number of json_number(). Throws FormatError with `file`.
double number_from_json(const nlohmann::json& json, const std::string& file);

/// A whole tensor, or one expert's matrix in a stack.
struct TensorSlice {
  const LogicalTensor* tensor = nullptr;
  /// The place of a matrix in a stack: element (i, j) is at first + i · row_stride + j ·
  /// col_stride. If row_stride is 0, the slice is the whole tensor.
  std::int64_t first = 0, row_stride = 0, col_stride = 1;

  bool whole() const { return row_stride == 0; }
  /// Reads elements [begin, begin + out.size()). Unless whole(), they are whole rows of `cols`
  /// elements.
  void read(std::int64_t begin, std::int64_t cols, std::span<float> out) const;
};

/// The smallest and the largest maximum of a block that is not zero. Both are 0 if there is none.
struct BlockRange {
  float smallest = 0, largest = 0;

  void add(const BlockRange& other) {
    if (other.largest == 0) return;
    smallest = largest == 0 ? other.smallest : std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
  }
};

/// The same weight in both checkpoints.
struct TensorPair {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorSlice a, b;
  /// Ranges of the blocks of `a` under each global scale of `b`, from `first_global` on.
  /// compare_pairs() sets them if `b`, and not `a`, is NVFP4 without a scale for each row.
  std::vector<BlockRange> blocks = {};
  std::size_t first_global = 0;
};

struct TensorPairs {
  std::vector<TensorPair> pairs;
  std::vector<std::string> only_in_a, only_in_b, shape_mismatch;
};

/// Pairs tensors by name. A stack of experts ("experts.gate_up_proj") is split as in quantization.
/// Its experts are paired with single experts of the other side ("experts.0.gate_proj.weight").
TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b);

/// Returns the report of compare_checkpoints() for two open checkpoints. Moves the lists of names
/// out of `pairs`.
CompareReport compare_pairs(const CheckpointReader& a, const CheckpointReader& b,
                            TensorPairs& pairs, Measured& measured,
                            const std::function<void(const Progress&)>& progress);

}  // namespace nvfp4::checkpoint
