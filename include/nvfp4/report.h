#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint.h"

/// Reports for people. As JSON each report has a to_json() beside its struct.
namespace nvfp4::report {

/// A weight that a run quantized by gptq, as its --report says.
struct DecidedWeight {
  std::string name;
  std::array<std::int64_t, 4> rows{};  ///< as TensorReport::chosen
  OutputError output;
};

/// What the page says beside the difference.
struct PageExtras {
  std::filesystem::path run = {};         ///< the --report of the run that made b; "" if not known
  std::filesystem::path statistics = {};  ///< what calibration saw; "" if not known
  std::filesystem::path against = {};     ///< another checkpoint made of a, beside b; "" for none
};

/// What b stands beside.
struct Rival {
  CompareReport difference;  ///< of a and it
  InspectReport inspected;   ///< with histograms
};

struct PageInput {
  CompareReport difference;  ///< of a and b
  InspectReport a, b;        ///< that of b with histograms
  std::size_t worst = 50;    ///< tensors to list
  std::vector<DecidedWeight> decided = {};
  std::vector<BudgetPoint> curve = {};        ///< of --bits and --size
  std::map<std::string, double> tokens = {};  ///< of weights, that calibration saw
  std::optional<Rival> rival = {};
};

/// Of the --report of quantize. Throws IoError, FormatError.
std::vector<DecidedWeight> decided_weights(const std::filesystem::path& run);
/// Its "curve", by bits; empty unless the run chose layers by bits or size. Throws the same.
std::vector<BudgetPoint> budget_curve(const std::filesystem::path& run);

/// What compare_checkpoints() found, as one HTML page that loads nothing: no script, no font, no
/// image. The same input gives the same bytes.
std::string page(const PageInput& input);

/// The page about checkpoints a and b, whose difference has been measured, with `worst` tensors or
/// more. Reads b once more, for its codes and scales. Throws IoError, FormatError,
/// UnsupportedError.
std::string page_of(CompareReport difference, const std::filesystem::path& a,
                    const std::filesystem::path& b, std::size_t worst = 0,
                    const std::function<void(const Progress&)>& progress = {},
                    const PageExtras& extras = {});

std::string human_bytes(std::uint64_t bytes);  ///< "1.23 GB", powers of ten
std::string human_count(double count);         ///< "8.03 B"
std::string human_duration(double seconds);    ///< "0.42 s", "3:07 min"
std::string human_clock(double seconds);       ///< "3:07"
std::string shape_text(const std::vector<std::int64_t>& shape);
std::string number(double x, const char* format);  ///< as fmt has it; "nan" and "inf"

}  // namespace nvfp4::report
