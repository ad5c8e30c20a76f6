#pragma once

#include "nvfp4/gemm.h"

/// What products ask of their descriptions and arguments: the only place where it is checked.
namespace nvfp4 {

/// Throws ShapeError, ValueError, UnsupportedError.
void check_description(const char* op, const GemmDescription& description, Device device);

/// Throws ShapeError, ValueError, UnsupportedError, DeviceError.
void check_arguments(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
                     std::span<std::byte> workspace);

/// Rows of out.
std::int64_t rows_of_result(const GemmArguments& arguments);

}  // namespace nvfp4
