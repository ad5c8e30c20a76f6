#pragma once

#include "nvfp4/gemm.h"

/// Checks of the descriptions and arguments of GEMMs. No other code checks them.
namespace nvfp4 {

/// Checks a description. Throws ShapeError, ValueError, UnsupportedError.
void check_description(const char* op, const GemmDescription& description, Device device);

/// Checks the arguments of a call. Throws ShapeError, ValueError, UnsupportedError, DeviceError.
void check_arguments(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
                     std::span<std::byte> workspace);

/// Returns the number of rows of out.
std::int64_t rows_of_result(const GemmArguments& arguments);

}  // namespace nvfp4
