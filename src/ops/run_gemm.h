#pragma once

#include "nvfp4/gemm.h"

namespace nvfp4 {

/// Does gemm() for layers. `row_ends_settled` is true if the work enqueued last does not write row
/// ends, row starts and ids. A GPU may then fetch the first weights while that work still runs.
void run_gemm(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
              std::span<std::byte> workspace, Stream stream, bool row_ends_settled);

}  // namespace nvfp4
