#include "backends/cuda/gemm/architecture.h"

namespace nvfp4::cuda {

extern const Architecture kSm80, kSm90;

std::span<const Architecture* const> architectures() {
  static constexpr const Architecture* kAll[] = {&kSm90, &kSm80};
  return kAll;
}

}  // namespace nvfp4::cuda
