#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"

/// Reports for people. Each report struct has a to_json() next to it for programs.
namespace nvfp4::report {

/// The kind and layer of a tensor. "model.layers.3.mlp.experts.7.up_proj.weight" has layer 3 and
/// kind "mlp.experts.*.up_proj". The layer is the first number of a name. A name without a number
/// has no layer and is its own kind.
struct Place {
  std::string stem;  ///< such as "model.layers"
  std::optional<std::int64_t> layer;
  std::string kind;
};
Place place_of(std::string_view tensor);

/// Sums of squares that combine tensors to one relative error.
struct ErrorSum {
  double squared_error = 0, squared_norm = 0;
  std::int64_t tensors = 0;

  void add(const ErrorSum& more);
  /// Returns ‖a − b‖ / ‖a‖, or NaN if a value was NaN.
  double relative() const;
  double sqnr_db() const;
};

/// The error of each tensor, by its name.
using TensorErrors = std::map<std::string, ErrorSum>;
TensorErrors errors_of(const CompareReport& report);

struct Kind {
  std::string name;
  ErrorSum total;
  std::map<std::int64_t, ErrorSum> layers;

  /// Returns the layer with the largest error, or none if there are no layers.
  std::optional<std::int64_t> worst_layer() const;
};

/// Returns the kinds, largest norm first. If there are several stems, names contain them
/// ("visual.blocks").
std::vector<Kind> kinds_of(const TensorErrors& errors);

/// A weight that a run quantized by gptq, read from the run's --report.
struct MethodShares {
  std::string name;
  std::array<std::int64_t, 4> rows{};  ///< see TensorReport::chosen
  OutputError output;
};

/// Additional sources of the page.
struct PageExtras {
  std::filesystem::path run = {};         ///< --report of the run that made b; "" if unknown
  std::filesystem::path statistics = {};  ///< statistics of the calibration; "" if unknown
  std::filesystem::path against = {};     ///< another checkpoint made from a; "" for none
};

/// Another checkpoint that the page compares with b.
struct ComparedWith {
  CompareReport difference;   ///< difference of a and this checkpoint
  InspectReport inspected;    ///< with histograms
  TensorErrors outputs = {};  ///< errors of its layers' outputs; empty without statistics
};

/// The least error over budgets.
struct BudgetCurve {
  std::vector<BudgetPoint> points = {};  ///< by budget
  bool of_bits = true;  ///< bits per weight; else percentage of multiplications in W4A16
};

/// The input of page().
struct PageInput {
  CompareReport difference;  ///< difference of a and b
  InspectReport a, b;        ///< `b` with histograms
  std::size_t worst = 50;    ///< number of tensors to list
  std::vector<MethodShares> method_shares = {};
  BudgetCurve curve = {};
  std::map<std::string, double> tokens = {};  ///< number of calibration tokens of each weight
  TensorErrors outputs = {};  ///< errors of b's layer outputs; empty without statistics
  std::optional<ComparedWith> compared_with = {};
};

/// Returns the gptq weights in the --report of quantize. Throws IoError, FormatError.
std::vector<MethodShares> method_shares(const std::filesystem::path& run);
/// Returns the "curve" of that report. It is empty unless the run had --bits, --size or --w4a4.
/// Throws IoError, FormatError.
BudgetCurve budget_curve(const std::filesystem::path& run);

/// Returns the result of compare_checkpoints() as one HTML page. The page loads nothing: no script,
/// no font, no image. The same input gives the same bytes.
std::string page(const PageInput& input);

/// Returns the page about checkpoints a and b, whose difference is already measured. It lists at
/// least `worst` tensors. Reads the codes and scales of b again. Throws IoError, FormatError,
/// UnsupportedError.
std::string page_of(CompareReport difference, const std::filesystem::path& a,
                    const std::filesystem::path& b, std::size_t worst = 0,
                    const std::function<void(const Progress&)>& progress = {},
                    const PageExtras& extras = {});

/// Returns a text such as "1.23 GB", with powers of ten.
std::string human_bytes(std::uint64_t bytes);
/// Returns a text such as "8.03 B".
std::string human_count(double count);
/// Returns a text such as "0.42 s" or "3:07 min".
std::string human_duration(double seconds);
/// Returns a text such as "3:07".
std::string human_clock(double seconds);
/// Returns a shape as text.
std::string shape_text(const std::vector<std::int64_t>& shape);
/// Returns the scheme or the dtype of a tensor in capital letters.
std::string form_of(const InspectedTensor& t);
/// Formats a number with fmt; "nan" and "inf" stay words.
std::string number(double x, const char* format);

}  // namespace nvfp4::report
