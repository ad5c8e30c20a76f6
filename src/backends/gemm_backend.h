#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/moe_job.h"
#include "backends/packed_storage.h"
#include "nvfp4/gemm.h"

/// The interface of a device for GEMM and the layers that use it. registry.cc has a table for the
/// CPU and one for GPUs. Arguments are validated.
namespace nvfp4 {

/// Vectors [first, first + count) of w.
struct PackPart {
  QuantizedView w = {};
  std::int64_t first = 0, count = 0;
};
/// Packs parts, one after the other, as a group of `packed`. On the CPU the caller copies the
/// global scales.
struct PackJob {
  std::span<const PackPart> parts;  ///< on a GPU exactly one, in its memory
  PackedStorage* packed = nullptr;
  std::int64_t group = 0;
  /// On a GPU: null, or raised to the complement of the first bad scale's index.
  std::uint64_t* bad_scale = nullptr;
  Stream stream = {};
};
struct UnpackJob {
  const PackedStorage* packed = nullptr;
  std::int64_t group = 0;
  QuantizedSpan w = {};  ///< axis rows, linear scales; on a GPU any layout, global scales optional
  Stream stream = {};
};

struct GemmBackend;

struct GemmPlan::Impl {
  GemmDescription description;
  Device device;
  const GemmBackend* backend = nullptr;
  // The backend's plan() sets the members below.
  std::string kernel;
  GemmTileShape tile;
  std::int64_t workspace_bytes = 0;
  std::shared_ptr<const void> chosen;  ///< for run() and describe() of the backend
  std::string tuned;                   ///< with autotune: the source of the choice
};

struct GemmCall {
  const GemmPlan::Impl& plan;
  const GemmArguments& arguments;
  std::span<std::byte> workspace;
  Stream stream;
  /// True if the previously enqueued work does not write row ends, row starts and ids. A GPU may
  /// then load the first weights while that work still runs.
  bool row_ends_settled = false;
};

struct GemmBackend {
  std::string_view name;
  /// True if run() computes SwiGLU. Otherwise it is a separate operation after the GEMM.
  bool fuses_swiglu = false;
  void (*pack)(const PackJob& job) = nullptr;
  void (*unpack)(const UnpackJob& job) = nullptr;
  /// Throws ValueError for an unknown kernel, or UnsupportedError.
  void (*plan)(GemmPlan::Impl& plan) = nullptr;
  /// Returns the names of all kernels that run on the device, of every architecture. Null: the
  /// backend chooses alone.
  std::vector<std::string> (*kernel_names)(Device device) = nullptr;
  /// Null: there is nothing to tune, and no plan uses autotune.
  GemmTuning (*tune)(const GemmDescription& description, Device device) = nullptr;
  /// Returns the order of summation: the end of to_string(plan).
  std::string (*describe)(const GemmPlan::Impl& plan) = nullptr;
  void (*run)(const GemmCall& call) = nullptr;

  // Mixture of experts, see moe_job.h.
  void (*dispatch)(const DispatchJob& job) = nullptr;
  void (*gather_rows)(const GatherJob& job) = nullptr;
  void (*combine_rows)(const CombineJob& job) = nullptr;
  /// Computes y += other: FP32, dense, columns a multiple of 4.
  void (*add_rows)(const MatrixView& other, const MatrixSpan& y, Stream stream) = nullptr;
  /// Zeroes the rows of m from *first on. `first` is on the device; m is as in add_rows.
  void (*clear_rows_from)(const std::int32_t* first, const MatrixSpan& m, Stream stream) = nullptr;
};

/// Returns the operations of a device. Throws UnsupportedError with the reason if `device` cannot
/// be used.
const GemmBackend& gemm_backend(Device device);

/// A GEMM backend and the devices that it supports.
struct GemmBackendEntry {
  bool (*serves)(Device device);
  const GemmBackend& (*get)(Device device);  ///< throws UnsupportedError
};
/// Sets an entry that is tried before those of the registry; null removes it. For tests, before any
/// plan is made.
void set_first_gemm_backend(const GemmBackendEntry* entry);

}  // namespace nvfp4
