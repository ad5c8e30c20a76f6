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

/// Products with NVFP4 weights, out = x · Wᵀ, W [N, K], on the CPU and on GPUs (from sm_80 on):
/// pack the weights once, plan a product of some shape, run the plan as often as wanted.
///
///     PackedWeights w = pack_weights(q.view(), {.device = Device::cuda()});
///     GemmPlan plan = plan_gemm(w, {.m = 16, .out = DType::bf16});
///     gemm(plan, {.x = x.view(), .weights = w, .out = y.span()}, workspace, stream);
namespace nvfp4 {

/// Gate and up of SwiGLU in one matrix [2·I, K]: where their rows are, as SwigluOptions says it.
struct GateUp {
  int interleave = 0;  ///< 0: gate above up; else groups of this many rows alternate, gate first
  bool operator==(const GateUp&) const = default;
};

/// Everything about packed weights but their bytes: G matrices [N, K].
struct PackedShape {
  std::int64_t groups = 1;                  ///< G
  std::int64_t rows = 0;                    ///< N
  std::int64_t cols = 0;                    ///< K
  GlobalScope scope = GlobalScope::tensor;  ///< vector: one global scale for each row, else group
  std::optional<GateUp> gate_up = {};       ///< packed for products that end in SwiGLU
  Device device = {};
  bool operator==(const PackedShape&) const = default;

  /// 9 for 16 elements, N rounded up to 16 on the CPU, N and K to 64 on a GPU.
  std::int64_t bytes() const;
  /// Those and the global scales: the memory that the weights take.
  std::int64_t memory_bytes() const;
};

/// NVFP4 weights in the order in which the kernels of their device read them (docs/layouts.md).
/// Cheap to copy: copies share the bytes.
class PackedWeights {
 public:
  PackedWeights() = default;  ///< empty
  /// Weights in memory of the caller, which outlives all copies: what pack_weights() left there
  /// before, or is to. `memory`: shape.memory_bytes() of them on shape.device, aligned to 16.
  /// Throws ShapeError, ValueError.
  PackedWeights(const PackedShape& shape, std::span<std::byte> memory);

  bool empty() const { return impl_ == nullptr; }
  PackedShape shape() const;    ///< of empty ones: groups 0
  std::int64_t groups() const;  ///< G
  std::int64_t rows() const;    ///< N
  std::int64_t cols() const;    ///< K
  std::int64_t bytes() const;   ///< of codes and scales
  Device device() const;
  /// The memory, global scales included.
  std::span<const std::byte> memory() const;

  struct Impl;
  explicit PackedWeights(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};
std::string to_string(const PackedWeights& w);
std::ostream& operator<<(std::ostream& out, const PackedWeights& w);

struct PackOptions {
  /// The matrix is G of [N, K], one below the other.
  std::int64_t groups = 1;
  std::optional<GateUp> gate_up = {};  ///< for products that end in SwiGLU; N = 2·I, I % 16 == 0
  /// Where the weights are to be used: none is where they lie. From the CPU to a GPU the codes and
  /// scales are uploaded as they are and packed there.
  std::optional<Device> device = {};
  /// None, or memory of the caller as in PackedWeights(shape, memory): nothing is allocated then.
  std::span<std::byte> memory = {};
  /// Without, on a GPU, nothing waits for the stream, and a block whose scale is NaN or has its
  /// sign set becomes zero.
  bool check_scales = true;
  Stream stream = {};  ///< of the GPU
};

/// Packs NVFP4 weights, before they are used.
///
/// Shapes  `w` stands for W [G·N, K] (axis rows) or for its transpose [K, G·N] (axis columns),
///         blocks of 16, any scale layout, a global scale for the tensor or for each output.
/// Values  on a GPU codes whose scale is 0 keep their sign, but not their magnitude; all else comes
///         back from unpack_weights() bit for bit.
/// Throws  ShapeError; ValueError if a scale is NaN or has its sign set; UnsupportedError,
///         DeviceError, std::bad_alloc.
PackedWeights pack_weights(QuantizedView w, const PackOptions& options = {});
/// Several of one K on one device, whose outputs follow one another: all of group 0, then all of
/// group 1 … Each keeps its global scales: there is one for each output, unless a single one is
/// that of its group.
PackedWeights pack_weights(std::span<const QuantizedView> parts, const PackOptions& options = {});
/// Quantizes, then packs. `quantize.axis` says where K is, as in quantize().
PackedWeights pack_weights(MatrixView w, const QuantizeOptions& quantize = {},
                           const PackOptions& options = {});

/// The codes, scales and global scales of matrix `group`, where the weights lie: axis rows, linear
/// scales. On a GPU enqueued on the stream. Throws ShapeError.
QuantizedMatrix unpack_weights(const PackedWeights& w, std::int64_t group = 0, Stream stream = {});

/// Which rows of x meet which of G matrices.
enum class GemmForm : std::uint8_t {
  dense,    ///< one matrix: x [M, K], out [M, N]
  grouped,  ///< rows [row_ends[g-1], row_ends[g]) of x [M, K] times matrix g; out [M, N]
  routed,   ///< row t · top_k + j of out [M, N] is of the matrix that ids[t, j] names; x [M, K],
            ///< or [M / top_k, K], whose row t all choices of token t read
  every_group,  ///< "mgk,gnk->mgn": x [M, G·K], or [M, K] that all groups read; out [M, G·N]
};

/// What happens to the FP32 sums before they are stored. A bias goes with each of them.
enum class Epilogue : std::uint8_t {
  none,             ///< rounded to the type of out
  swiglu,           ///< silu(gate) ∘ up of N = 2·I sums, out has I columns
  swiglu_quantize,  ///< the same, quantized along its rows: out is NVFP4
};

struct GemmDescription {
  std::int64_t m = 0;         ///< rows of out; calls may have fewer. Less than 2^31 - 256
  std::int64_t n = 0, k = 0;  ///< of each matrix; n >= 1, k % 16 == 0
  std::int64_t groups = 1;    ///< G; on a GPU at most 1024 if grouped
  GemmForm form = GemmForm::dense;
  Scheme scheme = Scheme::nvfp4a16;  ///< nvfp4a16: x as it is (W4A16); nvfp4: x is NVFP4 (W4A4)
  DType x = DType::bf16;             ///< W4A16: of x; not f32 on a GPU
  DType out = DType::bf16;           ///< not of swiglu_quantize
  std::int64_t top_k = 0;            ///< routed: choices of each token
  bool shared_x = false;             ///< routed and every_group: the second form of x
  Epilogue epilogue = Epilogue::none;
  /// SwiGLU: gate is clamped to <= limit, up to [-limit, limit].
  float swiglu_limit = std::numeric_limits<float>::infinity();
  /// The same row of x gives the same bits whatever the number of rows. What it costs, and where it
  /// makes a difference at all, is in docs/numerics.md. Not of routed on a GPU.
  bool batch_invariant = false;
  /// Above what x and the epilogue need, a plan may take this much for sums of parts of K: less
  /// time for 9 to 64 rows where N gives a GPU too few tiles. The bits of out depend on it.
  std::int64_t max_workspace_bytes = 0;
  std::string kernel = {};  ///< "": the library chooses; else one by name, as GemmPlan::kernel()
  /// On a GPU the kernel that was the fastest when measured: tune_gemm() has measured it before, or
  /// plan_gemm() does now, unless a file says what it was.
  bool autotune = false;
  std::string backend = {};  ///< of the CPU; "" takes NVFP4_BACKEND from the environment, else best
  bool operator==(const GemmDescription&) const = default;
};

/// Rows of x, rows of W and elements of K that a kernel multiplies at a time.
struct GemmTileShape {
  int m = 0, n = 0, k = 0;
  int split_k = 1;  ///< parts of K that are added up at the end
  bool operator==(const GemmTileShape&) const = default;
};

/// How a product is done. Never changes, cheap to copy, may be used from many threads. One plan
/// gives the same bits every time.
class GemmPlan {
 public:
  GemmPlan() = default;  ///< empty
  bool empty() const { return impl_ == nullptr; }
  const GemmDescription& description() const;
  Device device() const;
  const std::string& kernel() const;  ///< what GemmDescription::kernel takes
  GemmTileShape tile() const;
  /// What gemm() needs. Zero before its first use; products leave the part zero that must be, so
  /// that any number of plans may share one workspace, one after the other.
  std::int64_t workspace_bytes() const;

  struct Impl;
  explicit GemmPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const;  ///< throws ValueError if empty

 private:
  std::shared_ptr<const Impl> impl_;
};
/// One line: the description, the kernels, the workspace, the order of the sums.
std::string to_string(const GemmPlan& plan);
std::ostream& operator<<(std::ostream& out, const GemmPlan& plan);

/// Chooses how to do a product on `device`. Without autotune a pure function of the description and
/// the device: no file is read. With it see tune_gemm().
/// Throws ShapeError, ValueError (a kernel of another name, or that cannot do it),
/// UnsupportedError; with autotune what tune_gemm() throws.
GemmPlan plan_gemm(const GemmDescription& description, Device device = {});
/// The same with n, k, groups and the device of `w`.
GemmPlan plan_gemm(const PackedWeights& w, GemmDescription description);

/// A kernel that was measured.
struct TimedKernel {
  std::string kernel;  ///< its name; where rows are in two parts "N rows: one, M rows: another"
  double microseconds = 0;  ///< of a product
  bool chosen = false;      ///< what plan_gemm() takes without autotune
  bool operator==(const TimedKernel&) const = default;
};
struct GemmTuning {
  std::vector<TimedKernel> kernels;  ///< the first is taken, the others follow by their time
  std::string file;                  ///< which keeps that; "" if none does
  std::string note;                  ///< why none does, or what of the file was ignored
};

/// Measures the kernels on a GPU that may be fast for a product, and keeps the fastest in
/// $NVFP4_TUNE_CACHE, else $XDG_CACHE_HOME/nvfp4/gemm.json, else ~/.cache/nvfp4/gemm.json, under
/// the GPU's name, the driver's and the library's version and the product: plans with autotune take
/// it from there. What else a file holds is ignored, and said in the note; a file that is none of
/// ours is not overwritten. Weights are random and go through more memory than the L2 cache has;
/// rows fall upon groups at random. Some 0.1 to 2 s, and some 400 MB beside the weights. Throws as
/// plan_gemm(); UnsupportedError for the CPU, which has one kernel for a product; DeviceError, also
/// while a stream is captured in this thread.
GemmTuning tune_gemm(const GemmDescription& description, Device device);

/// Everything lies on the device of the plan.
struct GemmArguments {
  /// W4A16: strides are multiples of 8 on a GPU. W4A4: blocks of 16 along the rows, scales linear
  /// on the CPU, of any layout on a GPU; a global scale for the tensor or for each row.
  std::variant<MatrixView, QuantizedView> x = {};
  PackedWeights weights = {};
  /// Must not overlap x. QuantizedSpan: of swiglu_quantize, quantized with the quantizer max.
  std::variant<MatrixSpan, QuantizedSpan> out = {};
  float alpha = 1.0f;  ///< another factor, beside the global scales
  /// None, or one more factor for each of G groups.
  std::span<const float> group_alpha = {};
  /// None, or G · N of them, added to every row: those of group g start at g · N.
  std::span<const float> bias = {};
  /// Grouped: G ends; `row_starts` G too, or none where each group starts where the one before it
  /// ends. Groups lie in [0, rows of x), in order, may be empty and do not overlap; rows of none
  /// are not touched. Checked on the CPU only; a GPU does not wait for them.
  std::span<const std::int32_t> row_ends = {}, row_starts = {};
  /// Routed: ids of rows / top_k tokens. Its weights do not count. On a GPU rows whose id is not in
  /// 0 … G - 1 are not touched; on the CPU such an id is a ValueError.
  Routing routing = {};
  /// swiglu_quantize: one global scale, also of the host, or one for each row. On the CPU none,
  /// too: measured.
  GlobalScales out_global = {};
};

/// out[m, n] = (alpha · x.global_m · global_n) · Σ_k x[m, k] · (e2m1 · scale)[n, k] + bias[n]
///
/// Units   e2m1 · scale is exact. Sums are FP32: W4A4 on the CPU from the first block to the last,
///         each exact, with the same bits on every backend; else within the bounds of
///         docs/numerics.md. Factors and bias are applied in FP32, and the result is rounded once.
/// Async   on a GPU: enqueued on the stream. It allocates nothing, waits for nothing, and can be
///         captured in a graph. Calls that share a workspace must not overlap.
/// Throws  ShapeError, ValueError, UnsupportedError, DeviceError, before anything is written.
void gemm(const GemmPlan& plan, const GemmArguments& arguments, std::span<std::byte> workspace = {},
          Stream stream = {});

}  // namespace nvfp4
