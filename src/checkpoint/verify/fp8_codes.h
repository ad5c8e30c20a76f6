#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/verify/checks.h"

/// NaN among the codes of FP8 weights. No program writes it: the file is damaged. `nvfp4 verify`
/// reports it; what writes a model refuses it, or takes it if it is told to.
namespace nvfp4::checkpoint {

inline constexpr std::string_view kCodeNan = "code-nan";

std::int64_t count_nan(std::span<const std::byte> codes);
std::int64_t count_nan(std::span<const float> values);

/// Reads every code of the FP8 weights.
void check_codes(const Subject& subject, Findings& findings, Measured& measured,
                 const OnProgress& on_progress);

/// For a run that comes upon `n` of them, or of the values that they stand for: it reads each
/// weight only once, so it knows no sooner. Throws FormatError unless forced.
void refuse_nan(const LogicalTensor& weight, std::int64_t n, bool force);

}  // namespace nvfp4::checkpoint
