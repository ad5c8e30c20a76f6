#pragma once

#include <string>

#include "backends/cuda/gemm/architecture.h"
#include "nvfp4/layout.h"

/// GEMMs of FP8 by FP8: by cuBLASLt on compute capability 9.0, by mma.sync on 8.9 and 12.x. x is
/// quantized and W decoded to E4M3 in every call, with a factor for each row
/// (quantizers/fp8_rows.h). These functions are pure.
namespace nvfp4::cuda::fp8 {

/// The kernels of Arithmetic::fp8: of cuBLASLt, and by mma.sync. architectures() does not list
/// them.
extern const Architecture kArchitecture, kMmaArchitecture;

/// True: the tensor cores keep some 14 bits of a sum over all of K. False: with cuBLASLt they do so
/// over 128 of K and FP32 adds up the parts.
inline constexpr bool kFastAccumulation = true;

/// Returns why a GPU cannot multiply FP8 this way, or an empty string.
std::string why_unusable(const Capability& gpu);

/// Returns the number of rows from which FP8 is faster than the exact kernels.
std::int64_t fewest_rows(std::int64_t n, std::int64_t k, const Capability& gpu);

inline constexpr TileShape kMmaTile{.m = 128, .n = 256, .k = 64};  ///< of kMmaArchitecture
/// Returns the number of its tiles.
constexpr std::int64_t mma_blocks(const KernelProblem& p) {
  return ceil_div(p.m, kMmaTile.m) * ceil_div(p.n, kMmaTile.n);
}

inline constexpr std::int64_t kLibraryBytes = 32 << 20;  ///< NVIDIA's recommendation for Hopper

/// Offsets of the operands in the workspace: codes and factors of W and x, the bias as in out. By
/// mma.sync there are no bytes for the library.
struct Staging {
  std::int64_t w = 0, w_powers, w_factors, bias, x, x_factors, library, bytes;
};
constexpr Staging staging_of(std::int64_t m, std::int64_t n, std::int64_t k,
                             std::int64_t library_bytes = 0) {
  constexpr std::int64_t kAlign = 256;
  Staging s{};
  s.w_powers = round_up(n * k, kAlign);
  s.w_factors = s.w_powers + round_up(n * 4, kAlign);
  s.bias = s.w_factors + round_up(n * 4, kAlign);
  s.library = s.bias + round_up(n * 2, kAlign);
  s.x_factors = s.library + library_bytes;
  s.x = s.x_factors + round_up(m * 4, kAlign);
  s.bytes = s.x + round_up(m * k, kAlign);
  return s;
}

}  // namespace nvfp4::cuda::fp8
