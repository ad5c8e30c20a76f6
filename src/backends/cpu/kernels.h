#pragma once

#include "backends/backend.h"

namespace nvfp4::cpu {

/// Outputs of more bytes are stored past the caches: what will not be read again soon need not be
/// read before it is written.
inline constexpr std::int64_t kBeyondCaches = 16 << 20;

/// Each fills its operations for the SIMD target that Highway has chosen at the time of the call;
/// false if the target has no lanes to work on.
bool fill_encode(Backend& backend);
bool fill_decode(Backend& backend);
bool fill_measure(Backend& backend);
bool fill_w4a4(Backend& backend);
bool fill_w4a16(Backend& backend);
/// After fill_w4a16.
bool fill_digits(Backend& backend);
bool fill_rows(Backend& backend);
bool fill_gram(Backend& backend);
bool fill_gptq(Backend& backend);
bool fill_subtract_product(Backend& backend);
/// False if the CPU has no BF16 arithmetic.
bool fill_bf16(Backend& backend);
/// False if the CPU has no AMX, or the kernel does not let this process use it.
bool fill_amx(Backend& backend);

}  // namespace nvfp4::cpu
