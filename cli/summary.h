#pragma once

#include <filesystem>
#include <string>

#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::cli {

/// Facts for the summary that are not in the report.
struct SummaryFacts {
  std::filesystem::path input, output;
  std::string scales;  ///< origin of the scales, in a few words
};
/// Prints a summary of the run for people.
void print_summary(const QuantizeReport& report, const SummaryFacts& about);
/// Prints the report's warnings to stderr.
void print_warnings(const QuantizeReport& report);

}  // namespace nvfp4::cli
