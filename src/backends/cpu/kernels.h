#pragma once

#include "backends/backend.h"

namespace nvfp4::cpu {

/// Outputs of more bytes bypass the caches, because they are not read again soon. Their old
/// contents need not be read first.
inline constexpr std::int64_t kBeyondCaches = 16 << 20;

/// Each function sets its operations for Highway's target at the time of the call. It returns false
/// if the target has no SIMD lanes.
bool fill_encode(Backend& backend);
bool fill_decode(Backend& backend);
bool fill_measure(Backend& backend);
bool fill_w4a4(Backend& backend);
bool fill_w4a16(Backend& backend);
/// Must be called after fill_w4a16().
bool fill_digits(Backend& backend);
bool fill_rows(Backend& backend);
bool fill_gram(Backend& backend);
bool fill_gptq(Backend& backend);
bool fill_subtract_product(Backend& backend);
/// Returns false if the CPU has no BF16 arithmetic.
bool fill_bf16(Backend& backend);
/// Returns false if the CPU has no AMX, or the operating system does not allow this process to use
/// it.
bool fill_amx(Backend& backend);

}  // namespace nvfp4::cpu
