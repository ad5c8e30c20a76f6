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

/// Checks the tensors of an INT4 weight, and sets its shape. `declared` may be null. Returns the
/// reason why the weight cannot be read, or "".
std::string check_int4(LogicalTensor& weight, const Declared* declared);

/// Reads elements as LogicalTensor::read() does. The product is rounded to FP32 once.
void read_int4(const LogicalTensor& weight, std::int64_t first, std::span<float> out);

}  // namespace nvfp4::checkpoint
