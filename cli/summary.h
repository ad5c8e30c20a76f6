#pragma once

#include <filesystem>
#include <string>

#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::cli {

/// Facts for the summary that are not in the report.
struct SummaryFacts {
  std::filesystem::path input, output;
  std::string method;  ///< method and scheme, or "" if nothing is quantized
  std::string format;  ///< format of the output
};
/// Prints a summary of the run for people.
void print_summary(const QuantizeReport& report, const SummaryFacts& about);
/// Prints the report's warnings to stderr, one line for those that differ in names and numbers.
void print_warnings(const QuantizeReport& report);

}  // namespace nvfp4::cli
