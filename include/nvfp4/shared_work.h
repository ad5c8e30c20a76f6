#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint.h"
#include "nvfp4/verify.h"

/// Checkpoints that several processes compare or verify together, each a share of the tensors.
namespace nvfp4 {

/// This process is `rank` of `ranks`. What each has measured becomes a file in `parts`, a folder
/// that all of them see.
struct SharedWork {
  int rank = 0, ranks = 1;
  std::filesystem::path parts;
};

/// The rank that finds the files of all ranks has the report, the one that a single process makes.
/// Running any rank again makes it again.
template <class Report>
struct Shared {
  std::optional<Report> report;
  std::vector<int> missing;  ///< ranks that have no file yet; the report is absent then
};

/// Shared compare_checkpoints() and verify_checkpoint(). Throw what these do; ValueError for
/// invalid ranks or parts, FormatError for files of other checkpoints or options in `parts`.
Shared<CompareReport> compare_share(const std::filesystem::path& a, const std::filesystem::path& b,
                                    const SharedWork& shared,
                                    const std::function<void(const Progress&)>& progress = {});
/// As compare_share().
Shared<VerifyReport> verify_share(const VerifyOptions& options, const SharedWork& shared);

/// {"missing_ranks": [1, 3]}
std::string missing_to_json(const std::vector<int>& missing);

}  // namespace nvfp4
