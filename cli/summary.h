#pragma once

#include <filesystem>
#include <string>

#include "nvfp4/checkpoint.h"

namespace nvfp4::cli {

/// What the report does not say.
struct SummaryFacts {
  std::filesystem::path input, output;
  std::string scales;  ///< in a few words, how they came about
};
/// What became of a model, for people.
void print_summary(const QuantizeReport& report, const SummaryFacts& about);
/// The report's warnings, on stderr.
void print_warnings(const QuantizeReport& report);

}  // namespace nvfp4::cli
