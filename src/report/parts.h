#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/report.h"

/// Parts of the page that its sections share.
namespace nvfp4::report {

/// The reason why output errors come first.
inline constexpr const char* kWhyOutputs =
    "The error of the layers’ outputs over the calibration text counts. weighted and gptq lower "
    "it; errors of weights whose inputs are small or alike become larger. In large layers the "
    "output error is estimated from evenly spaced rows of the weight, at least 32.";

/// Returns a number with its unit. NaN and infinity are highlighted.
std::string measure(double x, const char* format, const char* unit);
std::string percent(double x);
std::string decibels(double x);
std::string share(std::uint64_t n, double total);

/// A table of cells in HTML. The first cell of a row is its header.
struct Table {
  std::string label, caption;  ///< an empty caption is left out
  std::vector<std::string> columns;
  std::size_t texts = 0;  ///< number of the last columns that hold texts, which align left
  std::vector<std::vector<std::string>> rows = {};

  /// Returns the table, which scrolls by itself if it is wide, also with the keyboard.
  std::string html() const;
};
std::string details(const std::string& summary, const std::string& body);

/// Returns the comparison of b with the other checkpoint by kind, and the tensors with the largest
/// differences. It is "" without one.
std::string side_by_side(const PageInput& in);

}  // namespace nvfp4::report
