#pragma once

#include <cstdint>

#include "nvfp4/activation.h"

/// A mixture of experts on a device: tokens to experts and back. Pointers are memory of the device;
/// none of the operations waits or allocates.
namespace nvfp4 {

inline constexpr int kMostGroups = 1024;  ///< of a grouped product on a GPU
inline constexpr std::int64_t kMostExperts = kMostGroups;
inline constexpr std::int64_t kMostRoutedDepth = 65536;  ///< K of a routed product on a GPU
inline constexpr std::int64_t kDispatchPairs = 1024;     ///< that a block of threads orders

/// Orders the pairs (t, k) of a routing by expert, and for the same expert by t, then k: as
/// dispatch() does on the CPU. A pair whose id names no expert gets no row.
struct DispatchJob {
  Routing routing = {};  ///< [T, top_k] on the device, T · top_k < 2^31
  std::int64_t experts = 0;
  std::int32_t* row_ends = nullptr;   ///< [E]: of each expert's rows
  std::int32_t* row_of = nullptr;     ///< [T · top_k]: of each pair, -1 for none
  std::int32_t* token_of = nullptr;   ///< [T · top_k]: of each row, -1 after the last end
  std::int32_t* expert_of = nullptr;  ///< [T · top_k]: of each row, 0 after the last end
  std::int32_t* counts = nullptr;     ///< dispatch_counts() of them, to work with
  Device device = {};
  Stream stream = {};
};
constexpr std::int64_t dispatch_counts(std::int64_t pairs, std::int64_t experts) {
  return (pairs + kDispatchPairs - 1) / kDispatchPairs * experts;
}

/// Row r of `to`, which is dense, is row index[r] of `from`, or zeros if that is negative. Without
/// index it is the row that the id of pair r of a routing names, or zeros if it names none.
struct GatherJob {
  const void* from = nullptr;
  std::int64_t from_stride = 0, row_bytes = 0;  ///< bytes
  const std::int32_t* index = nullptr;
  Routing routing = {};      ///< on the device
  std::int64_t experts = 0;  ///< rows of `from` that its ids may name
  std::int64_t rows = 0;
  void* to = nullptr;
  /// [rows], or null: what index says, both of one DispatchJob, with rows = T · top_k > 0. Then a
  /// row of `from` is read but once.
  const std::int32_t* row_of = nullptr;
  std::int64_t top_k = 0;
  Device device = {};
  Stream stream = {};
};

/// out[t] = first[t] + Σ_k weights[t, k] · rows[row_of[t, k]], FP32 in the order of k, products
/// rounded; then rounded to the type of out. Pairs without a row count nothing. Without row_of the
/// rows are those of the pairs, one each; those whose id names no expert have none. What was
/// enqueued last writes neither the routing nor row_of: they are read while it still runs.
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
