#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/verify.h"

/// Functions for several processes that compare or verify checkpoints together. Each process works
/// on a share of the tensors.
namespace nvfp4 {

/// The rank of this process among `ranks`. Each rank writes its measurements to a file in `parts`,
/// a folder that all of them share.
struct SharedWork {
  int rank = 0, ranks = 1;
  std::filesystem::path parts;
};

/// The result of one rank. The rank that finds the files of all ranks has the report, which equals
/// that of a single process. If any rank is run again, it makes the report again.
template <class Report>
struct Shared {
  std::optional<Report> report;
  std::vector<int> missing;  ///< ranks without a file; the report is then absent
};

/// Does the share of a rank of compare_checkpoints(). Throws its errors; ValueError for invalid
/// ranks or parts; FormatError for files of other checkpoints or options in `parts`.
Shared<CompareReport> compare_share(const std::filesystem::path& a, const std::filesystem::path& b,
                                    const SharedWork& shared,
                                    const std::function<void(const Progress&)>& progress = {});
/// Does the share of a rank of verify_checkpoint(). Throws as compare_share().
Shared<VerifyReport> verify_share(const VerifyOptions& options, const SharedWork& shared);

/// Returns a JSON object such as {"missing_ranks": [1, 3]}.
std::string missing_to_json(const std::vector<int>& missing);

}  // namespace nvfp4
