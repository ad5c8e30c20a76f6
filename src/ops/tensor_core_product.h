#pragma once

#include "backends/device_backend.h"
#include "core/require.h"
#include "ops/options.h"

/// What all products on tensor cores ask of their arguments, and do before the product.
namespace nvfp4 {

/// x as the kernel reads it.
struct GemmInput {
  MatrixView view;
  const float* global = nullptr;
  bool global_per_row = false;
};
GemmInput gemm_input(const char* op, const MatrixView& x, const FragmentWeights& w,
                     const TensorCoreGemmOptions& options);
/// Decoded into the workspace, but for the global scales.
GemmInput gemm_input(const char* op, const QuantizedView& x, const FragmentWeights& w,
                     const TensorCoreGemmOptions& options);

/// x.cols = K; of one group, or of `groups` whose ends (and starts) are given.
void require_depth(const char* op, const GemmInput& x, const FragmentWeights& w);
void require_one_group(const char* op, const FragmentWeights& w);
void require_groups(const char* op, const FragmentWeights& w, std::span<const std::int32_t> starts,
                    std::span<const std::int32_t> ends);
/// routing: of tokens whose choices read x, which has a row for each token, or for each choice.
void require_routed(const char* op, const GemmInput& x, const Routing& routing,
                    const TensorCoreGemmOptions& options);
void require_factors(const char* op, const FragmentWeights& w,
                     const TensorCoreGemmOptions& options);
void require_product(const char* op, const MatrixSpan& out, std::int64_t rows, std::int64_t cols,
                     Device device);

inline void decode(const MatrixView&, const GemmInput&, Stream) {}
void decode(const QuantizedView& x, const GemmInput& to, Stream stream);

template <class X>
void run_product(const X& x, const GemmInput& in, FragmentGemmJob job) {
  const DeviceBackend& backend = device_backend(job.w->device());
  if (in.view.rows > 0) decode(x, in, job.options.stream);
  job.x = in.view;
  job.x_global = in.global;
  job.x_global_per_row = in.global_per_row;
  backend.fragment_gemm(job);
}

}  // namespace nvfp4
