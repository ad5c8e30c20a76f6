#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nvfp4/checkpoint.h"
#include "report/layers.h"

/// Charts as inline SVG. Positions are percentages, so that a chart is as wide as its page and its
/// text keeps its size; the numbers behind each are in a table as well.
namespace nvfp4::report {

/// How many kinds have a colour and a marker of their own.
inline constexpr std::size_t kSeries = 8;

/// Where an axis is labelled: round numbers, the outer ones around all values.
struct Axis {
  double low = 0, step = 1;
  int count = 2;  ///< of labels
  double high() const { return low + step * (count - 1); }
};
Axis axis_around(double low, double high);

/// Relative error of the first kSeries kinds over the layers. Empty if there are no layers.
std::string error_chart(const std::vector<Kind>& kinds);

/// The error that is left, of the first point's, over bits; its axis is logarithmic. Empty without
/// two points that have one.
std::string curve_chart(const std::vector<BudgetPoint>& curve);

/// The sixteen codes by value, -6 to 6.
std::string code_chart(const std::vector<std::uint64_t>& counts);

/// The E4M3 values by code, 0 to 448. `counts`: 256; those of negative ones and NaN are left out.
std::string scale_chart(const std::vector<std::uint64_t>& counts);

}  // namespace nvfp4::report
