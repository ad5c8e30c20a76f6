#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/checks.h"

/// NaN codes in FP8 weights. No program writes NaN, so the file is damaged. `nvfp4 verify` reports
/// them. Commands that write a model reject them unless forced.
namespace nvfp4::checkpoint {

inline constexpr std::string_view kCodeNan = "code-nan";

std::int64_t count_nan(std::span<const std::byte> codes);
std::int64_t count_nan(std::span<const float> values);

/// Reads every code of the FP8 weights and reports NaN codes.
void check_codes(const Subject& subject, Findings& findings, Measured& measured,
                 const OnProgress& on_progress);

/// Rejects `n` NaN codes or values that a run found. The run reads each weight once, so it finds
/// them late. Throws FormatError unless forced.
void refuse_nan(const LogicalTensor& weight, std::int64_t n, bool force);

/// The use that a run makes of a source's values.
struct UseOfValues {
  bool force = false;    ///< faulty values are used as they are
  bool inputs = false;   ///< input scales are used
  bool caches = false;   ///< the output declares a quantized cache, whatever the source does
  bool globals = false;  ///< NVFP4 weights keep their global scales
  bool ignores = false;  ///< --ignore can leave weights out
};

/// Checks a source for values that verify calls faulty. Throws FormatError for them unless `force`
/// is set; then the first warning describes them. The other warnings are about odd values that may
/// be right.
std::vector<std::string> take_faults(const ModelFolder& model, const UseOfValues& use);

}  // namespace nvfp4::checkpoint
