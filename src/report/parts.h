#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/compare/measured.h"
#include "checkpoint/statistics/statistics.h"
#include "report/report.h"

/// Parts of the page that its sections share.
namespace nvfp4::report {

/// The page's style sheet, the text of data/page.css. In both color schemes text has a contrast of
/// at least 4.5 and marks of at least 3.
extern const std::string_view kStyle;

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

/// Escapes text of a file for a page, in elements and quoted attributes. The result contains no
/// tags, entities, control characters or invalid UTF-8 of the file.
std::string escape(std::string_view text);

/// Escapes a name of a file. It is isolated, so that right-to-left characters do not move the text
/// around it. Lines can break after dots and slashes.
std::string name(std::string_view text);

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

/// Returns ‖X (a − b)ᵀ‖² and ‖X aᵀ‖² of each weight that the statistics have, by its name. XᵀX is
/// the Gram matrix, or its diagonal if the file has no more. With a large matrix the sums are over
/// evenly spaced rows of the weight, at least 32. Throws IoError, FormatError.
TensorErrors output_errors(const checkpoint::CheckpointReader& a,
                           const checkpoint::CheckpointReader& b,
                           const checkpoint::Statistics& statistics);

}  // namespace nvfp4::report
