#pragma once

#include "backends/device_backend.h"
#include "backends/gemm_backend.h"

/// Launchers of the device's operations. Each is in the .cu file of its name.
namespace nvfp4::cuda {

void quantize(const DeviceQuantizeJob& job);
void quantize_rows(const RowQuantizeJob& job);
void quantize_values(const MatrixView& x, const float* multiplier, const MatrixSpan& out,
                     Stream stream);
void store_rows(const RowJob& job, const MatrixSpan& y, Stream stream);
void dequantize(const QuantizedView& q, const MatrixSpan& out, Stream stream);
void error_parts(const MatrixView& x, const QuantizedView& q, QuantizationError* parts,
                 Stream stream);
void amax(const MatrixView& x, float* out, GlobalScope scope, BlockAxis axis, Stream stream);
void global_scales(const float* amaxes, GlobalScale* out, std::int64_t count, Quantizer q,
                   Device device, Stream stream);
void gram(const MatrixView& x, const MatrixSpan& out, bool accumulate, Stream stream);
void gptq(const DeviceGptqJob& job);
std::int64_t gptq_workspace(std::int64_t rows, std::int64_t depth);
void relayout(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
              ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks, Device device,
              Stream stream);
void pack_fragments(const PackJob& job);
void unpack_fragments(const UnpackJob& job);
void dispatch(const DispatchJob& job);
void gather_rows(const GatherJob& job);
void combine_rows(const CombineJob& job);
void add_rows(const MatrixView& other, const MatrixSpan& y, Stream stream);
void clear_rows_from(const std::int32_t* first, const MatrixSpan& m, Stream stream);

/// Number of elements of the longest row that fits one thread block.
inline constexpr std::int64_t kMostRowElements = 16 * 1024 * 4;

/// Stores the multipliers of given global scales in `out`.
void store_global_scales(const GlobalScales& given, const QuantizedSpan& out, Stream stream);
/// Converts amaxes to multipliers in place: the last step of a measured global scale.
void finish_global_scales(float* values, std::int64_t count, Quantizer q, Stream stream);
/// Zeroes the scales if the layout has padding that no kernel writes.
void clear_padding(const QuantizedSpan& out, Stream stream);

}  // namespace nvfp4::cuda
