#pragma once

#include <algorithm>
#include <bit>

#include "backends/cuda/rows.cuh"
#include "backends/cuda/rows_staged.cuh"
#include "backends/cuda/runtime.h"

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
  kernel<<<grid, threads, 0, stream_of(stream)>>>(a);
  check(cudaGetLastError(), "rows: kernel launch");
}

inline bool is_fast(const RowArgs& a) {
  return a.aligned && (a.quantizer == Quantizer::max || a.mode == RowMode::store) &&
         (a.interleave == 0 || a.interleave >= 8) && (!a.has_residual || is_aligned(a.residual));
}

/// Whether staged_rows_kernel() takes it.
template <RowKind kKind, DType kType>
bool fits_stage(const RowArgs& a) {
  constexpr int kMostInterleaved = 16 * kCopyBytes / kElementBytes<kType>;  // see RowCopies
  const int blocks = a.has_residual ? kStagedBlocks<kKind, true> : kStagedBlocks<kKind, false>;
  return a.blocks <= blocks * kChunk * kStagedWarps && a.interleave <= kMostInterleaved &&
         (!a.has_residual || (a.residual.dtype == kType && a.residual_out.dtype == kType &&
                              is_aligned(a.residual_out)));
}

template <RowKind kKind, DType kType, bool kStores, bool kResidual>
void launch_staged(const RowArgs& a, Device device, Stream stream) {
  const auto kernel = staged_rows_kernel<kKind, kType, kStores, kResidual>;
  const int warps = static_cast<int>(ceil_div(a.blocks, kStagedBlocks<kKind, kResidual> * kChunk));
  const int bytes = warps * kStagedBytes<kKind, kType, kResidual>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kStagedWarps * kStagedBytes<kKind, kType, kResidual>),
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
  kernel<<<grid, 32 * warps, static_cast<std::size_t>(bytes), stream_of(stream)>>>(a);
  check(cudaGetLastError(), "rows: kernel launch");
}

/// Few rows: a block of 16 for each thread, which takes the least time. Many: staged. Long rows:
/// four.
template <RowKind kKind, DType kType>
void launch_type(const RowArgs& a, Device device, Stream stream) {
  constexpr RowForm kFast = RowForm::fast;
  const bool few = a.rows <= multiprocessors(device);
  if (!is_fast(a) || a.blocks > 4 * kMostThreads<kFast, 4>)
    return launch_instance<RowForm::general, kKind, kType, 4>(a, device, stream);
  if (few && a.blocks <= kMostThreads<kFast, 1>)
    return launch_instance<kFast, kKind, kType, 1>(a, device, stream);
  const bool stores = a.mode == RowMode::store;
  if constexpr (kKind != RowKind::mix)
    if (fits_stage<kKind, kType>(a)) {
      if constexpr (kKind == RowKind::norm)
        if (a.has_residual)
          return stores ? launch_staged<kKind, kType, true, true>(a, device, stream)
                        : launch_staged<kKind, kType, false, true>(a, device, stream);
      if (!stores) return launch_staged<kKind, kType, false, false>(a, device, stream);
      if constexpr (kKind != RowKind::plain)
        return launch_staged<kKind, kType, true, false>(a, device, stream);
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
