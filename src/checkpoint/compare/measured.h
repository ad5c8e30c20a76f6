#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/compare/shared_work.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/io/posix_file.h"
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

/// Returns a number as JSON. NaN and infinities, which JSON lacks, become strings.
nlohmann::json json_number(double x);
/// Returns the number of json_number(). Throws FormatError with `file`.
double number_from_json(const nlohmann::json& json, const std::string& file);

}  // namespace nvfp4::checkpoint
