#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "nvfp4/shared_work.h"

namespace nvfp4::checkpoint {

/// What ranks measure of the same items, each of them its share. The work is done twice by each:
/// first measuring the share, then, if join() finds the files of all, taking what is in them. So
/// the last one says what one process would.
class Measured {
 public:
  /// `what` begins the files' names. Throws ValueError for a rank that cannot be.
  Measured(const SharedWork& shared, std::string what);

  bool is_shared() const { return shared_.ranks > 1; }
  /// Whether each item is this process's to measure now; by their sizes.
  std::vector<bool> mine(const std::vector<std::uint64_t>& sizes) const;
  /// Before join(): keeps `items`, null where not mine. After it: makes them those of all ranks.
  /// `identity` says what they are of. Throws FormatError for a file with others.
  void exchange(const std::string& stage, const std::string& identity, nlohmann::json& items);
  /// Writes this rank's file, and says of which ranks there is none: they are still at work. Throws
  /// IoError, FormatError.
  std::vector<int> join();

 private:
  std::filesystem::path file_of(int rank) const;
  void take(int rank, const nlohmann::json& stages);

  SharedWork shared_;
  std::string what_;
  bool joined_ = false;
  nlohmann::json stages_;  ///< name -> {"of", "items"}
};

/// A number of any kind in JSON, which has none that is not finite.
nlohmann::json json_number(double x);
/// Throws FormatError naming `file`.
double number_from_json(const nlohmann::json& json, const std::string& file);

}  // namespace nvfp4::checkpoint
