#pragma once

#include "backends/backend.h"

namespace nvfp4::cpu {

/// Outputs of more bytes bypass the caches, because they are not read again soon. Their old
/// contents need not be read first.
inline constexpr std::int64_t kBeyondCaches = 16 << 20;

/// Sets the operations for Highway's target at the time of the call. Returns false if the target
/// has no SIMD lanes.
bool fill(Backend& backend);
/// Sets operations by instructions that Highway does not know. Returns false if the CPU lacks BF16.
bool fill_bf16(Backend& backend);
/// Returns false if the CPU has no AMX, or the operating system does not allow this process to use
/// it.
bool fill_amx(Backend& backend);

}  // namespace nvfp4::cpu
