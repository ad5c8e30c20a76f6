#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/logical_tensor.h"

/// INT4 weights: (code - zero point) · scale, with a scale and a zero point for each row of a group
/// of columns.
namespace nvfp4::checkpoint {

/// Returns the name of the form, for messages.
std::string_view int4_name(const WeightNames& names);

/// The reason why an INT4 weight cannot be read.
struct Int4Fault {
  std::string_view code;  ///< a code of `nvfp4 verify`; kAnotherForm if the tensors may be whole
  std::string text;       ///< "": none
};
inline constexpr std::string_view kAnotherForm = "unknown-form";

/// Checks the tensors of an INT4 weight, and sets its shape. `declared` may be null.
Int4Fault check_int4(LogicalTensor& weight, const Declared* declared);

/// Reads elements as LogicalTensor::read() does. The product is rounded to FP32 once.
void read_int4(const LogicalTensor& weight, std::int64_t first, std::span<float> out);

}  // namespace nvfp4::checkpoint
