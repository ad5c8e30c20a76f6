#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"
#include "report/report.h"

/// Charts as inline SVG. Positions are percentages, so a chart is as wide as its page and its text
/// keeps its size. The numbers of each chart are also in a table.
namespace nvfp4::report {

/// Number of kinds with a color and marker of their own.
inline constexpr std::size_t kSeries = 8;

/// The labels of an axis. They are round numbers, and the outer ones enclose all values.
struct Axis {
  double low = 0, step = 1;
  int count = 2;  ///< number of labels
  double high() const { return low + step * (count - 1); }
};
Axis axis_around(double low, double high);

/// Returns the errors of the first kSeries kinds over the layers, or "" without layers. `title` is
/// such as "Relative error".
std::string error_chart(const std::vector<Kind>& kinds, const char* title);

/// Returns the remaining share of the first point's error over the budget, with a logarithmic axis.
/// The result is "" unless two points have an error.
std::string curve_chart(const BudgetCurve& curve);

/// Returns the counts of the sixteen codes by value, -6 to 6.
std::string code_chart(const std::vector<std::uint64_t>& counts);

/// Returns the counts of the E4M3 values by code, 0 to 448. `counts` has 256 entries; those of
/// negative values and NaN are ignored.
std::string scale_chart(const std::vector<std::uint64_t>& counts);

}  // namespace nvfp4::report
