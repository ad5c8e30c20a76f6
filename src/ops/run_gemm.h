#pragma once

#include "nvfp4/gemm.h"

namespace nvfp4 {

/// gemm(), with what only the layers know. `row_ends_settled`: what was enqueued last before does
/// not write row ends, row starts and ids, so that a GPU may fetch the first weights while it still
/// runs.
void run_gemm(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
              std::span<std::byte> workspace, Stream stream, bool row_ends_settled);

}  // namespace nvfp4
