#include "backends/cuda/gemm/sm90/tensor_maps.h"

#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/gemm/sm90/kernels.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// Gets the function from the runtime, so that nothing links against the driver.
EncodeTiled tensor_map_encoder() {
  static const EncodeTiled encoder = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned kSince = 12000;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince,
                                           cudaEnableDefault, &found),
          "cudaGetDriverEntryPointByVersion");
    require<DeviceError>(found == cudaDriverEntryPointSuccess && entry != nullptr,
                         "gemm: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return encoder;
}

/// Encodes a tensor map of 16-bit elements. The innermost dimension has no stride.
template <std::size_t kRank>
CUtensorMap encode(DType type, const void* data, const cuuint64_t (&dims)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   const cuuint32_t (&steps)[kRank],
                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  CUtensorMap map;
  const CUresult status = tensor_map_encoder()(
      &map,
      type == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(data), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require<DeviceError>(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error {}",
                       static_cast<int>(status));
  return map;
}

}  // namespace

CUtensorMap x_tensor_map(const MatrixView& x, std::int64_t k, const KernelArguments& p,
                         const KernelConfig& kernel) {
  const bool of_group = p.x_of_group, whole_chunks = p.x_whole_chunks;
  constexpr std::uint64_t kChunkBytes = kTileCols * 2;
  const auto size = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t groups = of_group ? size(x.cols / k) : 1;
  const cuuint64_t dims[4] = {whole_chunks ? kTileCols : size(k), size(x.rows),
                              whole_chunks ? size(k / kTileCols) : 1, groups};
  const cuuint64_t strides[3] = {size(x.stride) * 2, kChunkBytes, size(k) * 2};
  const int chunks = whole_chunks ? box_chunks(kernel, p.x_box) : 1;
  const cuuint32_t box[4] = {kTileCols, static_cast<cuuint32_t>(p.x_box),
                             static_cast<cuuint32_t>(chunks), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encode(x.dtype, x.data, dims, strides, box, steps);
}

CUtensorMap out_tensor_map(const MatrixSpan& out, int rows, bool swiglu) {
  const auto size = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t dims[2] = {size(out.cols), size(out.rows)};
  const cuuint64_t strides[1] = {size(out.stride) * 2};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(swiglu ? kTileRows / 2 : kTileRows),
                             static_cast<cuuint32_t>(rows)};
  const cuuint32_t steps[2] = {1, 1};
  return encode(out.dtype, out.data, dims, strides, box, steps,
                swiglu ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace nvfp4::cuda
