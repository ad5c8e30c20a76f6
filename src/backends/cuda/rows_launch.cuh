#pragma once

#include <algorithm>

#include "backends/cuda/launchers.h"
#include "backends/cuda/rows.cuh"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {

template <RowKind kKind, DType kType, int kBlocks>
void launch_instance(const RowArgs& a, Stream stream) {
  const auto kernel = rows_kernel<kKind, kType, kBlocks>;
  const int threads =
      static_cast<int>(std::max<std::int64_t>(32, round_up(ceil_div(a.blocks, kBlocks), 32)));
  int resident = 1;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0),
        "rows: occupancy");
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(
      a.rows.x.rows, std::int64_t{multiprocessors(a.rows.x.device)} * std::max(resident, 1)));
  kernel<<<grid, threads, 0, stream_of(stream)>>>(a);
  check(cudaGetLastError(), "rows: kernel launch");
}

template <RowKind kKind, DType kType>
void launch_type(const RowArgs& a, Stream stream) {
  if (a.blocks <= kMostThreads<1> && a.out.shape.block != 32)
    launch_instance<kKind, kType, 1>(a, stream);
  else if (a.blocks <= 4 * kMostThreads<4>)
    launch_instance<kKind, kType, 4>(a, stream);
  else
    launch_instance<kKind, kType, 8>(a, stream);
}

template <RowKind kKind>
void launch_kind(const RowArgs& a, Stream stream) {
  if (a.rows.x.rows == 0 || a.blocks == 0) return;
  require_row_length(a.blocks * 16);
  visit_dtype(a.rows.x.dtype, [&](auto type) { launch_type<kKind, type.value>(a, stream); });
}

}  // namespace nvfp4::cuda
