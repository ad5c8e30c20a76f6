#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "nvfp4/activation.h"
#include "nvfp4/matrix.h"
#include "nvfp4/quantize.h"
#include "nvfp4/scheme.h"

/// GEMMs with NVFP4 weights, out = x · Wᵀ, W [N, K], on the CPU and on GPUs (from sm_80 on). The
/// weights are packed once. A plan is made once for each shape and can run any number of times.
///
///     PackedWeights w = pack_weights(q.view(), {.device = Device::cuda()});
///     GemmPlan plan = plan_gemm(w, {.m = 16, .out = DType::bf16});
///     gemm(plan, {.x = x.view(), .weights = w, .out = y.span()}, workspace, stream);
namespace nvfp4 {

/// The order of the rows of gate and up in one matrix [2·I, K]. It corresponds to
/// SwigluOptions::interleave.
struct GateUp {
  int interleave = 0;  ///< 0: gate above up; else gate and up alternate in groups of this many rows
  bool operator==(const GateUp&) const = default;
};

/// Shape of packed weights: G matrices [N, K].
struct PackedShape {
  std::int64_t groups = 1;                  ///< G
  std::int64_t rows = 0;                    ///< N
  std::int64_t cols = 0;                    ///< K
  GlobalScope scope = GlobalScope::tensor;  ///< a global scale for each group (tensor) or row
  std::optional<GateUp> gate_up = {};       ///< order of gate and up, for a GEMM with SwiGLU
  Device device = {};
  bool operator==(const PackedShape&) const = default;

  /// Returns the size of codes and scales: 9 bytes for 16 elements. N is rounded up to a multiple
  /// of 16 on the CPU; N and K are rounded up to 64 on a GPU.
  std::int64_t bytes() const;
  /// Returns the size of the whole memory in bytes, global scales included.
  std::int64_t memory_bytes() const;
};

/// NVFP4 weights in the order in which the kernels of their device read them (docs/layouts.md). A
/// copy is cheap: it shares the bytes.
class PackedWeights {
 public:
  PackedWeights() = default;  ///< empty
  /// Refers to weights in memory of the caller, which must outlive all copies. pack_weights() has
  /// written that memory, or will write it. `memory` has shape.memory_bytes() bytes on shape.device
  /// and is aligned to 16. Throws ShapeError, ValueError.
  PackedWeights(const PackedShape& shape, std::span<std::byte> memory);

  bool empty() const { return impl_ == nullptr; }
  PackedShape shape() const;    ///< with groups = 0 if empty
  std::int64_t groups() const;  ///< G
  std::int64_t rows() const;    ///< N
  std::int64_t cols() const;    ///< K
  std::int64_t bytes() const;   ///< size of codes and scales in bytes
  Device device() const;
  /// Returns the memory of the weights, global scales included.
  std::span<const std::byte> memory() const;

  struct Impl;
  explicit PackedWeights(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};
/// Returns the shape, layout and device as text.
std::string to_string(const PackedWeights& w);
std::ostream& operator<<(std::ostream& out, const PackedWeights& w);

/// The options of pack_weights().
struct PackOptions {
  /// Number G of matrices [N, K] in the input, one below the other.
  std::int64_t groups = 1;
  std::optional<GateUp> gate_up = {};  ///< for GEMMs with SwiGLU; N = 2·I, I % 16 == 0
  /// The device that will use the weights. By default it is the device of the input. Weights on the
  /// CPU are uploaded as they are and packed on the GPU.
  std::optional<Device> device = {};
  /// Memory of the caller, as in PackedWeights(shape, memory). If empty, the memory is allocated.
  std::span<std::byte> memory = {};
  /// If true, a faulty scale is an error, for which a GPU must be waited for. If false, a GPU is
  /// not waited for, and a block whose scale is NaN or negative becomes zero.
  bool check_scales = true;
  Stream stream = {};  ///< stream of the GPU
};

/// Packs NVFP4 weights.
///
/// Shapes  `w` is W [G·N, K] (axis rows) or its transpose [K, G·N] (axis columns). It has blocks of
///         16, any scale layout, and one global scale or one for each output.
/// Values  unpack_weights() returns the same bits, with one exception: on a GPU, a code whose scale
///         is 0 keeps its sign only.
/// Throws  ShapeError; ValueError if a scale is NaN or has its sign set; UnsupportedError,
///         DeviceError, std::bad_alloc.
PackedWeights pack_weights(QuantizedView w, const PackOptions& options = {});
/// Packs several weights with the same K, on one device. Their outputs follow one another: first
/// all outputs of group 0, then those of group 1. Each weight keeps its global scales. The result
/// has one global scale for each output, unless all parts of a group share a single one.
PackedWeights pack_weights(std::span<const QuantizedView> parts, const PackOptions& options = {});
/// Quantizes a matrix and packs it. `quantize.axis` gives the direction of K, as in quantize().
PackedWeights pack_weights(MatrixView w, const QuantizeOptions& quantize = {},
                           const PackOptions& options = {});

/// Returns codes, scales and global scales of matrix `group`, on the device of the weights, with
/// axis rows and linear scales. On a GPU the work is enqueued on the stream. Throws ShapeError.
QuantizedMatrix unpack_weights(const PackedWeights& w, std::int64_t group = 0, Stream stream = {});

/// The assignment of the rows of x to the G matrices.
enum class GemmForm : std::uint8_t {
  dense,        ///< one matrix: x [M, K], out [M, N]
  grouped,      ///< rows [row_ends[g-1], row_ends[g]) of x [M, K] times matrix g; out [M, N]
  routed,       ///< row t · top_k + j of out [M, N] uses matrix ids[t, j]. x is [M, K],
                ///< or [M / top_k, K] with one row for all choices of token t
  every_group,  ///< "mgk,gnk->mgn": x [M, G·K], or [M, K] for all groups; out [M, G·N]
};

/// The operation on the FP32 sums before they are stored. The bias is added in each case.
enum class Epilogue : std::uint8_t {
  none,             ///< the sums are rounded to the type of out
  swiglu,           ///< silu(gate) ∘ up of N = 2·I sums; out has I columns
  swiglu_quantize,  ///< the same, quantized along its rows; out is NVFP4
};

/// The precision of the operands of a GEMM.
enum class Arithmetic : std::uint8_t {
  exact,  ///< e2m1 · scale, and x as given
  fp8,    ///< both are rounded to E4M3 with a factor for each row, from a number of rows on
};

/// The problem that a plan solves, with its options.
struct GemmDescription {
  std::int64_t m = 0;         ///< rows of out, at most 2^31 - 256; a call may have fewer
  std::int64_t n = 0, k = 0;  ///< shape of each matrix; n >= 1, k % 16 == 0
  std::int64_t groups = 1;    ///< G; at most 1024 if grouped on a GPU
  GemmForm form = GemmForm::dense;
  Scheme scheme = Scheme::w4a16;  ///< w4a16: x is dense; w4a4: x is NVFP4
  DType x = DType::bf16;          ///< W4A16: type of x; not f32 on a GPU
  DType out = DType::bf16;        ///< type of out, except for swiglu_quantize
  std::int64_t top_k = 0;         ///< routed: number of choices of each token
  bool shared_x = false;          ///< routed, every_group: x has its second form
  Epilogue epilogue = Epilogue::none;
  /// The upper limit of gate; up is clamped to [-limit, limit].
  float swiglu_limit = std::numeric_limits<float>::infinity();
  /// If true, a row of x gives the same bits for every number of rows. Cost and effect are in
  /// docs/numerics.md. Routed GEMMs on a GPU do not have it.
  bool batch_invariant = false;
  /// fp8 is for dense W4A16 GEMMs with BF16 or FP16 output and N a multiple of 16, on compute
  /// capability 9.0 with cuBLASLt 12.9, and on 8.9 and 12.x. It is not batch-invariant.
  /// docs/numerics.md has its error.
  Arithmetic arithmetic = Arithmetic::exact;
  /// Additional workspace in bytes that a plan may use for split K. It saves time for 9 to 64 rows
  /// if N gives a GPU too few tiles. The bits of out depend on it.
  std::int64_t max_workspace_bytes = 0;
  std::string kernel = {};  ///< kernel name as in GemmPlan::kernel(); "": the library chooses
  /// If true, a GPU uses the kernel that measured fastest. The measurement comes from the file of
  /// tune_gemm(); otherwise plan_gemm() makes it.
  bool autotune = false;
  std::string backend = {};  ///< backend of the CPU; "": NVFP4_BACKEND, else the best
  bool operator==(const GemmDescription&) const = default;
};

/// The rows of x, rows of W and elements of K that a kernel multiplies at a time.
struct GemmTileShape {
  int m = 0, n = 0, k = 0;
  int split_k = 1;  ///< number of parts of K that are summed at the end
  bool operator==(const GemmTileShape&) const = default;
};

/// A plan of a GEMM. It is immutable, cheap to copy and usable from many threads. One plan always
/// gives the same bits.
class GemmPlan {
 public:
  GemmPlan() = default;  ///< empty
  bool empty() const { return impl_ == nullptr; }
  const GemmDescription& description() const;  ///< the argument of plan_gemm()
  Device device() const;
  const std::string& kernel() const;  ///< name as in GemmDescription::kernel
  GemmTileShape tile() const;
  /// Returns the size of the workspace of gemm() in bytes. With max_workspace_bytes above 0 the
  /// workspace must be zero before its first use. Each GEMM restores the zeros that are needed, so
  /// any number of plans can share one workspace, one after the other.
  std::int64_t workspace_bytes() const;

  struct Impl;
  explicit GemmPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;  ///< throws ValueError if empty

 private:
  std::shared_ptr<const Impl> impl_;
};
/// Returns one line: the description, the kernels, the workspace and the order of the sums.
std::string to_string(const GemmPlan& plan);
std::ostream& operator<<(std::ostream& out, const GemmPlan& plan);

/// Chooses the kernels of a GEMM on `device`. Without autotune the choice depends on description
/// and device alone, and no file is read. For autotune see tune_gemm(). Throws ShapeError,
/// ValueError (an unknown or unsuitable kernel name), UnsupportedError; with autotune also the
/// errors of tune_gemm().
GemmPlan plan_gemm(const GemmDescription& description, Device device = {});
/// Plans with n, k, groups and the device of `w`.
GemmPlan plan_gemm(const PackedWeights& w, GemmDescription description);

/// A kernel and its measured time.
struct TimedKernel {
  std::string kernel;       ///< name; for two parts of rows "N rows: one, M rows: another"
  double microseconds = 0;  ///< duration of one GEMM
  bool chosen = false;      ///< true for the choice of plan_gemm() without autotune
  bool operator==(const TimedKernel&) const = default;
};
/// The result of tune_gemm().
struct GemmTuning {
  std::vector<TimedKernel> kernels;  ///< the fastest comes first, then the others by time
  std::string file;                  ///< file with the result; "" if it was not written
  std::string note;  ///< reason why it was not written, or what was ignored in the file
};

/// Measures the kernels that may be fast for a GEMM on a GPU and stores the fastest. The file is
/// $NVFP4_TUNE_CACHE, else $XDG_CACHE_HOME/nvfp4/gemm.txt, else ~/.cache/nvfp4/gemm.txt. An entry
/// has the GPU's name, the versions of driver and library, and the problem. Plans with autotune
/// read it. Other content of the file is ignored, and the note says so. A file of another program
/// is not overwritten. The weights are random and exceed the L2 cache; rows are assigned to groups
/// at random. A call takes 0.1 to 2 s and about 400 MB in addition to the weights. Throws as
/// plan_gemm(); UnsupportedError for the CPU, which has one kernel for each GEMM; DeviceError, also
/// while this thread captures a stream.
GemmTuning tune_gemm(const GemmDescription& description, Device device);

/// The operands of a GEMM, all on the device of the plan.
struct GemmArguments {
  /// The input. W4A16: on a GPU the stride is a multiple of 8. W4A4: blocks of 16 along the rows,
  /// with one global scale or one for each row. The scales are linear on the CPU and have any
  /// layout on a GPU.
  std::variant<MatrixView, QuantizedView> x = {};
  PackedWeights weights = {};
  /// The output, which must not overlap x. A QuantizedSpan is for swiglu_quantize; the quantizer is
  /// max.
  std::variant<MatrixSpan, QuantizedSpan> out = {};
  float alpha = 1.0f;  ///< a factor in addition to the global scales
  /// Empty, or a factor for each of the G groups.
  std::span<const float> group_alpha = {};
  /// Empty, or G · N values that are added to every row. The values of group g start at g · N.
  std::span<const float> bias = {};
  /// Grouped: G ends and, optionally, G starts. Without `row_starts` each group starts at the end
  /// of the group before it. Groups are within [0, rows of x), in order, may be empty and do not
  /// overlap. Rows of no group are not written. The CPU checks the ends; a GPU is not waited for
  /// and does not check them.
  std::span<const std::int32_t> row_ends = {}, row_starts = {};
  /// Routed: the ids of rows / top_k tokens; its weights are ignored. An id outside 0 … G - 1 is a
  /// ValueError on the CPU. On a GPU its row is not written.
  Routing routing = {};
  /// swiglu_quantize: one global scale, also on the host, or one for each row. On the CPU it may be
  /// empty; the scales are then measured.
  GlobalScales out_global = {};
};

/// Computes out[m, n] = (alpha · x.global_m · global_n) · Σ_k x[m, k] · (e2m1 · scale)[n, k] +
/// bias[n].
///
/// Units   e2m1 · scale is exact, and sums are FP32. W4A4 on the CPU adds exact sums of blocks from
///         first to last, and every backend gives the same bits. Other sums are within the bounds
///         of docs/numerics.md. Factors and bias are applied in FP32, and the result is rounded
///         once.
/// Async   On a GPU the call enqueues work on the stream. It allocates nothing, waits for nothing
///         and can be captured in a graph. Calls that share a workspace must not overlap.
/// Throws  ShapeError, ValueError, UnsupportedError, DeviceError, before anything is written.
void gemm(const GemmPlan& plan, const GemmArguments& arguments, std::span<std::byte> workspace = {},
          Stream stream = {});

}  // namespace nvfp4
