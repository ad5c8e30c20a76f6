#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/fp4_instruction.h"
#include "backends/moe_job.h"
#include "backends/packed_storage.h"
#include "nvfp4/gemm.h"

/// What a device provides for products and the layers made of them: a table for the CPU and one for
/// GPUs, found by registry.cc. Arguments are validated.
namespace nvfp4 {

/// Vectors [first, first + count) of w.
struct PackPart {
  QuantizedView w = {};
  std::int64_t first = 0, count = 0;
};
/// The parts, one after the other -> a group of `packed`. Global scales are the caller's on the
/// CPU.
struct PackJob {
  std::span<const PackPart> parts;  ///< on a GPU one, that lies there
  PackedStorage* packed = nullptr;
  std::int64_t group = 0;
  /// On a GPU null, or raised there to the complement of the first bad scale's place.
  std::uint64_t* bad_scale = nullptr;
  Stream stream = {};
};
struct UnpackJob {
  const PackedStorage* packed = nullptr;
  std::int64_t group = 0;
  QuantizedSpan w = {};  ///< axis rows, linear scales; on a GPU of any layout, or without globals
  Stream stream = {};
};

struct GemmBackend;

struct GemmPlan::Impl {
  GemmDescription description;
  Device device;
  const GemmBackend* backend = nullptr;
  // What the backend's plan() fills in.
  std::string kernel;
  GemmTileShape tile;
  std::int64_t workspace_bytes = 0;
  std::shared_ptr<const void> chosen;  ///< for its run() and describe()
  std::string tuned;                   ///< with autotune: where the choice comes from
};

struct GemmCall {
  const GemmPlan::Impl& plan;
  const GemmArguments& arguments;
  std::span<std::byte> workspace;
  Stream stream;
  /// What was enqueued last before does not write row ends, row starts and ids: a GPU may fetch the
  /// first weights while it still runs.
  bool row_ends_settled = false;
};

struct GemmBackend {
  std::string_view name;
  /// Whether run() does SwiGLU; else it is an operation of its own, behind the product.
  bool fuses_swiglu = false;
  void (*pack)(const PackJob& job) = nullptr;
  void (*unpack)(const UnpackJob& job) = nullptr;
  /// Throws ValueError for a kernel that there is not, UnsupportedError.
  void (*plan)(GemmPlan::Impl& plan) = nullptr;
  /// Names of all kernels that run on the device, of every architecture. Null: the library's choice
  /// is all there is.
  std::vector<std::string> (*kernel_names)(Device device) = nullptr;
  /// Null: nothing to tune, and no plan is made with autotune.
  GemmTuning (*tune)(const GemmDescription& description, Device device) = nullptr;
  /// How the sums are made: the end of to_string(plan).
  std::string (*describe)(const GemmPlan::Impl& plan) = nullptr;
  void (*run)(const GemmCall& call) = nullptr;
  /// What the device has of the instruction for NVFP4 by NVFP4, for the selftest. Null, or it
  /// returns null: nothing.
  const Fp4Instruction* (*fp4_instruction)(Device device) = nullptr;

  // A mixture of experts: see moe_job.h.
  void (*dispatch)(const DispatchJob& job) = nullptr;
  void (*gather_rows)(const GatherJob& job) = nullptr;
  void (*combine_rows)(const CombineJob& job) = nullptr;
  /// y += other: FP32, dense, a multiple of 4 columns.
  void (*add_rows)(const MatrixView& other, const MatrixSpan& y, Stream stream) = nullptr;
  /// Zeroes the rows of m, as in add_rows, from *first on, which lies on the device.
  void (*clear_rows_from)(const std::int32_t* first, const MatrixSpan& m, Stream stream) = nullptr;
};

/// Throws UnsupportedError with the reason if nothing can run on `device`.
const GemmBackend& gemm_backend(Device device);

/// Of which devices a table is.
struct GemmBackendEntry {
  bool (*serves)(Device device);
  const GemmBackend& (*get)(Device device);  ///< throws UnsupportedError
};
/// Asked before those of the registry; null removes it. For tests, before any plan is made.
void set_first_gemm_backend(const GemmBackendEntry* entry);

}  // namespace nvfp4
