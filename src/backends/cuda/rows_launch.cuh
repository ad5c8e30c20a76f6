#pragma once

#include <algorithm>
#include <bit>

#include "backends/cuda/norm_rows.cuh"
#include "backends/cuda/rows.cuh"
#include "backends/cuda/rows_staged.cuh"
#include "backends/cuda/runtime.h"
#include "backends/cuda/swiglu_blocks.cuh"

namespace nvfp4::cuda {

template <RowForm kForm, RowKind kKind, DType kType, int kBlocks>
void launch_instance(const RowArgs& a, Device device, Stream stream) {
  const auto kernel = rows_kernel<kForm, kKind, kType, kBlocks>;
  const auto needed = static_cast<unsigned>(ceil_div(a.blocks, kBlocks));
  const bool power_of_two = kForm == RowForm::fast && kBlocks > 1;  // see block_of()
  const auto threads =
      std::max(32, static_cast<int>(power_of_two ? std::bit_ceil(needed) : round_up(needed, 32)));
  int resident = 1;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0),
        "rows: occupancy");
  const auto grid =
      static_cast<unsigned>(std::min(a.rows, multiprocessors(device) * std::max(resident, 1)));
  launch_dependent("rows: kernel launch",
                   {dim3(grid), dim3(static_cast<unsigned>(threads)), stream_of(stream)}, kernel,
                   a);
}

inline bool is_fast(const RowArgs& a) {
  return a.aligned && (a.quantizer == Quantizer::max || a.mode == RowMode::store) &&
         (a.interleave == 0 || a.interleave >= 8) && (!a.has_residual || is_aligned(a.residual));
}

/// Returns the number of warps of a row in staged_rows_kernel().
template <RowKind kKind, bool kResidual>
int staged_warps(const RowArgs& a) {
  return static_cast<int>(ceil_div(a.blocks, kStagedBlocks<kKind, kResidual> * kChunk));
}

/// Reports whether staged_rows_kernel() can process the rows.
template <RowKind kKind, DType kType, bool kResidual>
bool fits_stage(const RowArgs& a, Device device) {
  constexpr int kMostInterleaved = 16 * kCopyBytes / kElementBytes<kType>;  // see RowCopies
  const int warps = staged_warps<kKind, kResidual>(a);
  return warps <= kStagedWarps && a.interleave <= kMostInterleaved &&
         warps * kStagedBytes<kKind, kType, kResidual> <= shared_bytes(device) - kStaticShared &&
         (!kResidual || (a.residual.dtype == kType && a.residual_out.dtype == kType &&
                         is_aligned(a.residual_out)));
}

template <RowKind kKind, DType kType, bool kStores, bool kResidual>
void launch_staged(const RowArgs& a, Device device, Stream stream) {
  auto kernel = staged_rows_kernel<kKind, kType, kStores, kResidual>;
  if constexpr (kKind == RowKind::norm && !kStores)
    if (a.mode == RowMode::quantize && a.intermediate == DType::f32)
      kernel = a.measure ? norm_rows_kernel<kType, kResidual, true>
                         : norm_rows_kernel<kType, kResidual, false>;
  const int warps = staged_warps<kKind, kResidual>(a);
  const int bytes = warps * kStagedBytes<kKind, kType, kResidual>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared_bytes(device) - kStaticShared),
        "rows: shared memory");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "rows: shared memory");
  int resident = 1;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * warps,
                                                      static_cast<std::size_t>(bytes)),
        "rows: occupancy");
  const auto grid =
      static_cast<unsigned>(std::min(a.rows, multiprocessors(device) * std::max(resident, 1)));
  launch_dependent("rows: kernel launch",
                   {dim3(grid), dim3(static_cast<unsigned>(32 * warps)), stream_of(stream),
                    static_cast<std::size_t>(bytes)},
                   kernel, a);
}

/// Returns the number of rows that the grid of swiglu_blocks_kernel() processes at once, or 0 if it
/// cannot be used.
template <DType kType>
std::int32_t swiglu_step(const RowArgs& a, Device device) {
  if (a.measure || a.mode == RowMode::amax) return 0;
  const int threads = multiprocessors(device) * kSwigluResident<kType> * kSwigluThreads;
  const int step = threads / a.blocks;
  return a.rows <= step ? a.rows : step >> a.scale_steps.tile_shift << a.scale_steps.tile_shift;
}

template <DType kType>
void launch_swiglu_blocks(const RowArgs& a, std::int32_t step, Stream stream) {
  const std::int64_t threads = std::int64_t{step} * a.blocks;
  launch_dependent("swiglu: kernel launch",
                   {dim3(static_cast<unsigned>(ceil_div(threads, kSwigluThreads))),
                    dim3(kSwigluThreads), stream_of(stream)},
                   a.mode == RowMode::store ? swiglu_blocks_kernel<kType, true>
                                            : swiglu_blocks_kernel<kType, false>,
                   a, step);
}

/// Chooses the kernel. Few rows: one block of 16 for each thread has the lowest latency. Many rows:
/// staged. Long rows: four blocks for each thread.
template <RowKind kKind, DType kType>
void launch_type(const RowArgs& a, Device device, Stream stream) {
  constexpr RowForm kFast = RowForm::fast;
  const bool few = a.rows <= multiprocessors(device);
  if (!is_fast(a) || a.blocks > 4 * kMostThreads<kFast, 4>)
    return launch_instance<RowForm::general, kKind, kType, 4>(a, device, stream);
  if (few && a.blocks <= kMostThreads<kFast, 1>)
    return launch_instance<kFast, kKind, kType, 1>(a, device, stream);
  const bool stores = a.mode == RowMode::store;
  if constexpr (kKind == RowKind::swiglu)
    if (const std::int32_t step = swiglu_step<kType>(a, device); step > 0)
      return launch_swiglu_blocks<kType>(a, step, stream);
  if constexpr (kKind != RowKind::mix) {
    if (a.has_residual) {
      if constexpr (kKind == RowKind::norm)
        if (fits_stage<kKind, kType, true>(a, device))
          return stores ? launch_staged<kKind, kType, true, true>(a, device, stream)
                        : launch_staged<kKind, kType, false, true>(a, device, stream);
    } else if (fits_stage<kKind, kType, false>(a, device)) {
      if (!stores) return launch_staged<kKind, kType, false, false>(a, device, stream);
      if constexpr (kKind != RowKind::plain)
        return launch_staged<kKind, kType, true, false>(a, device, stream);
    }
  }
  if (a.blocks <= 2 * kMostThreads<kFast, 2>)
    launch_instance<kFast, kKind, kType, 2>(a, device, stream);
  else
    launch_instance<kFast, kKind, kType, 4>(a, device, stream);
}

template <RowKind kKind>
void launch_kind(const RowArgs& a, DType dtype, Device device, Stream stream) {
  visit_dtype(dtype, [&](auto type) { launch_type<kKind, type.value>(a, device, stream); });
}

}  // namespace nvfp4::cuda
