#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "backends/cuda/solver/invert_lower.h"
#include "core/require.h"

namespace nvfp4 {

void cuda::require_row_size(std::int64_t rows, std::int64_t elements) {
  require<UnsupportedError>(elements <= kMostRowElements && rows < (std::int64_t{1} << 31),
                            "cuda: {} rows of {} elements, at most 2^31 - 1 of {} can be fused",
                            rows, elements, kMostRowElements);
}

const DeviceBackend& device_backend(Device device) {
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable, "device = cuda:{}: {}",
                            device.index, reason);
  static constexpr DeviceBackend kBackend{.quantize = cuda::quantize,
                                          .quantize_rows = cuda::quantize_rows,
                                          .store_rows = cuda::store_rows,
                                          .dequantize = cuda::dequantize,
                                          .error_parts = cuda::error_parts,
                                          .amax = cuda::amax,
                                          .global_scales = cuda::global_scales,
                                          .gram = cuda::gram,
                                          .gptq = cuda::gptq,
                                          .gptq_workspace = cuda::gptq_workspace,
                                          .relayout = cuda::relayout,
                                          .solver = cuda::solver,
                                          .quantize_values = cuda::quantize_values};
  return kBackend;
}

}  // namespace nvfp4
