#pragma once

#include <cstdint>

#include "nvfp4/activation.h"

/// Jobs of a mixture of experts on a device: tokens to experts and back. Pointers are device
/// memory. No operation waits or allocates.
namespace nvfp4 {

inline constexpr int kMostGroups = 1024;  ///< limit of a grouped GEMM on a GPU
inline constexpr std::int64_t kMostExperts = kMostGroups;
inline constexpr std::int64_t kMostRoutedDepth = 65536;  ///< limit of K of a routed GEMM on a GPU
inline constexpr std::int64_t kDispatchPairs = 1024;     ///< pairs that a thread block sorts

/// Sorts the pairs (t, k) of a routing by expert, then t, then k, like dispatch() on the CPU. A
/// pair whose id names no expert gets no row.
struct DispatchJob {
  Routing routing = {};  ///< [T, top_k] on the device, T · top_k < 2^31
  std::int64_t experts = 0;
  std::int32_t* row_ends = nullptr;   ///< [E]: end row of each expert
  std::int32_t* row_of = nullptr;     ///< [T · top_k]: row of each pair, or -1
  std::int32_t* token_of = nullptr;   ///< [T · top_k]: token of each row, -1 after the last end
  std::int32_t* expert_of = nullptr;  ///< [T · top_k]: expert of each row, 0 after the last end
  std::int32_t* counts = nullptr;     ///< temporary memory: dispatch_counts() elements
  Device device = {};
  Stream stream = {};
};
constexpr std::int64_t dispatch_counts(std::int64_t pairs, std::int64_t experts) {
  return (pairs + kDispatchPairs - 1) / kDispatchPairs * experts;
}

/// Copies rows: row r of the dense `to` is row index[r] of `from`, or zeros if that is negative.
/// Without an index, the id of pair r of a routing names the row; zeros if it names none.
struct GatherJob {
  const void* from = nullptr;
  std::int64_t from_stride = 0, row_bytes = 0;  ///< in bytes
  const std::int32_t* index = nullptr;
  Routing routing = {};      ///< on the device
  std::int64_t experts = 0;  ///< number of rows of `from` that ids may name
  std::int64_t rows = 0;
  void* to = nullptr;
  /// The inverse of index, [rows], or null. Both are from one DispatchJob with rows = T · top_k >
  /// 0. A row of `from` is then read only once.
  const std::int32_t* row_of = nullptr;
  std::int64_t top_k = 0;
  Device device = {};
  Stream stream = {};
};

/// Computes out[t] = first[t] + Σ_k weights[t, k] · rows[row_of[t, k]] in FP32, in the order of k.
/// Products are rounded, and the result is rounded to the type of out. Pairs without a row add
/// nothing. Without row_of each pair has its own row, unless its id names no expert. The previously
/// enqueued work must not write the routing or row_of: they are read while it still runs.
struct CombineJob {
  MatrixView first = {};  ///< FP32 [T, N], dense, N % 8 == 0; without data: zeros
  MatrixView rows = {};   ///< FP32 or BF16 [·, N], dense
  Routing routing = {};
  std::int64_t experts = 0;
  const std::int32_t* row_of = nullptr;  ///< [T · top_k], or null
  MatrixSpan out = {};                   ///< [T, N], any type and stride
  Stream stream = {};
};

}  // namespace nvfp4
