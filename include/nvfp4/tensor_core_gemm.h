#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "nvfp4/activation.h"
#include "nvfp4/gemm.h"
#include "nvfp4/matrix.h"

/// Products with NVFP4 weights on the tensor cores of a GPU: y = x · Wᵀ, for G >= 1 matrices W of
/// [N, K] at once, N >= 1, K % 16 == 0, any number of rows of x.
///
/// The products enqueue work on options.stream and return: they allocate nothing, wait for nothing
/// and can be captured in a graph. They run on Hopper (sm_90); weights can be packed anywhere.
namespace nvfp4 {

/// Gate and up of SwiGLU in one matrix [2·I, K]: where their rows are, as SwigluOptions says it.
struct GateUp {
  int interleave = 0;  ///< 0: gate above up; else groups of this many rows alternate, gate first
};

/// WeightLayout::fragments_64x64: G matrices [N, K], on the CPU or on a GPU, as the tensor cores
/// read them; 9 bytes for 16 elements, N and K rounded up to 64. Moves, does not copy.
class FragmentWeights {
 public:
  static constexpr std::int64_t kTileRows = 64, kTileCols = 64;
  static constexpr std::int64_t kTileBytes = kTileRows * kTileCols / 16 * 9;

  FragmentWeights() = default;
  /// Matrices of zeros, with global scales of zero. With `gate_up` their rows are packed for the
  /// products of tensor_core_swiglu.h, and for no others. Throws ShapeError, ValueError;
  /// DeviceError, UnsupportedError or std::bad_alloc if there is no such memory.
  FragmentWeights(std::int64_t groups, std::int64_t rows, std::int64_t cols, GlobalScope scope,
                  Device device = {}, std::optional<GateUp> gate_up = {});
  /// The same in memory of the caller, which outlives it and is what was packed there before, or is
  /// for pack_fragments_into(): `tiles` of bytes() bytes, aligned to 16, and `globals`, groups() ·
  /// group_globals() of them. Throws ShapeError, ValueError.
  FragmentWeights(std::int64_t groups, std::int64_t rows, std::int64_t cols, GlobalScope scope,
                  Device device, std::span<std::uint8_t> tiles, std::span<float> globals,
                  std::optional<GateUp> gate_up = {});
  FragmentWeights(FragmentWeights&& other) noexcept { swap(other); }
  FragmentWeights& operator=(FragmentWeights&& other) noexcept {
    FragmentWeights(std::move(other)).swap(*this);
    return *this;
  }
  void swap(FragmentWeights& other) noexcept;

  WeightLayout layout() const { return WeightLayout::fragments_64x64; }
  std::int64_t groups() const { return groups_; }  ///< G
  std::int64_t rows() const { return rows_; }      ///< N
  std::int64_t cols() const { return cols_; }      ///< K
  GlobalScope scope() const { return scope_; }     ///< vector: one global scale for each row
  const std::optional<GateUp>& gate_up() const { return gate_up_; }
  Device device() const { return data_.device(); }
  std::int64_t row_tiles() const { return ceil_div(rows_, kTileRows); }
  std::int64_t col_tiles() const { return ceil_div(cols_, kTileCols); }
  std::int64_t group_bytes() const { return row_tiles() * col_tiles() * kTileBytes; }
  std::int64_t bytes() const { return groups_ * group_bytes(); }  ///< of codes and scales
  /// [G][row tile][column tile] tiles, on the device.
  const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(data_.data()); }
  std::uint8_t* data() { return static_cast<std::uint8_t*>(data_.data()); }
  std::int64_t group_globals() const { return scope_ == GlobalScope::tensor ? 1 : rows_; }
  /// groups() · group_globals() of them, on the device.
  const float* global_scale() const { return static_cast<const float*>(global_.data()); }
  float* global_scale() { return static_cast<float*>(global_.data()); }

 private:
  struct Shape {};  ///< all but the memory, checked
  FragmentWeights(Shape, std::int64_t groups, std::int64_t rows, std::int64_t cols,
                  GlobalScope scope, std::optional<GateUp> gate_up);

  Buffer data_, global_;
  std::int64_t groups_ = 0, rows_ = 0, cols_ = 0;
  GlobalScope scope_ = GlobalScope::tensor;
  std::optional<GateUp> gate_up_;
};

/// A copy on another device, complete when the call returns.
FragmentWeights to_device(const FragmentWeights& w, Device device);

/// Packs NVFP4 weights once, before they are used: on the device where they lie, the same bytes
/// everywhere.
///
/// Shapes  `w` stands for G matrices W [N, K] one below the other (axis rows), or for the transpose
///         [K, G·N] of that (axis columns); blocks of 16, any scale layout, a global scale for the
///         tensor (which every group then gets) or for each row of W.
/// Values  Codes whose scale is 0 keep their sign, but not their magnitude: all else comes back
///         from unpack_fragments() bit for bit.
/// Throws  ShapeError; ValueError if a scale is NaN or has its sign set. On a GPU the call waits
/// for
///         the stream to find out.
FragmentWeights pack_fragments(QuantizedView w, std::int64_t groups = 1, Stream stream = {});
/// G matrices [2·I, K] of gate and up, I % 16 == 0. Throws ShapeError, ValueError.
FragmentWeights pack_gate_up_fragments(QuantizedView w, GateUp order = {}, std::int64_t groups = 1,
                                       Stream stream = {});
/// G matrices that lie apart, all of one shape, scope and device.
FragmentWeights pack_fragments(std::span<const QuantizedView> w, Stream stream = {});

/// The same into group `group` of `packed`, which has the shape, scope and device of `w`, one
/// matrix: enqueued on the stream, nothing is allocated. On a GPU scales are not checked: a block
/// whose scale is NaN or has its sign set becomes zero. A product may follow on the same stream.
void pack_fragments_into(QuantizedView w, FragmentWeights& packed, std::int64_t group = 0,
                         Stream stream = {});

/// Matrix `group` again, where the weights lie: axis rows, linear scales. On a GPU enqueued on the
/// stream. Throws ShapeError.
QuantizedMatrix unpack_fragments(const FragmentWeights& w, std::int64_t group = 0,
                                 Stream stream = {});

/// How a product is cut up among the multiprocessors, for experiments. Only some combinations
/// exist; tiles of 2 tokens are for K % 64 == 0, those of 16 rows not for SwiGLU, those of 1 token
/// for routed_gemm_into() alone, which has no others.
struct GemmTile {
  int tokens = 0;  ///< rows of x; 0: a table and a cost model choose
  int rows = 0;    ///< of W
  int splits = 1;  ///< of K
  /// Steps along K before the next kernel of the stream may bring its weights, where both have room
  /// on a multiprocessor: the memory is busy when this one's copies end, and not sooner. Tiles of 1
  /// token let it start at once.
  int next = 0;
  /// Stages of weights that a block brings while the kernel before still runs: they take the memory
  /// from it. 0: all that it has room for, as do tiles of few tokens whose warps bring the weights
  /// themselves (1 and 2 tokens; 8 with up to 64 rows and 16 with 32 and 64, without splits).
  int early = 0;
  /// Steps along K that helpers take of each block's: blocks for which there is room, but no tile.
  /// Needs options.partial_sums; for tiles of 64 rows and 16 or 32 tokens with splits, or 64 tokens
  /// with next = 0, of which a GPU takes more at once than there are, and whole steps.
  int help = 0;
  bool operator==(const GemmTile&) const = default;
};

/// Memory of a GPU in which blocks of a product leave sums for others, 5 MB. Any number of products
/// may use it one after the other, on one stream or in order; two at the same time, of two streams
/// or branches of a graph, have wrong results or never end. Moves, does not copy.
class PartialSums {
 public:
  /// Throws DeviceError, UnsupportedError or std::bad_alloc if there is no such memory.
  explicit PartialSums(Device device);

  Device device() const { return data_.device(); }
  void* data() { return data_.data(); }
  static std::int64_t bytes();

 private:
  Buffer data_;
};

/// Spans are memory of the GPU that x and w lie on.
struct TensorCoreGemmOptions {
  float alpha = 1.0f;  ///< another factor, beside the global scales
  /// None, or one more factor for each of the G groups.
  std::span<const float> group_alpha = {};
  /// None, or G · N of them, added to every row: those of group g start at g · N.
  std::span<const float> bias = {};
  /// The same row of x gives the same bits whatever the number of rows.
  bool batch_invariant = false;
  /// Of groups: what was enqueued last before this product writes neither starts nor ends, nor the
  /// ids of a routing, so that the first weights can be fetched while it still runs.
  bool ends_settled = false;
  GemmTile tile = {};
  /// For quantized x: gemm_workspace_bytes() bytes, aligned to 16. What is in it is overwritten.
  std::span<std::byte> workspace = {};
  /// None, or what lets blocks help others: up to a quarter less time for 9 to 64 rows of x where
  /// tiles of 64 rows of W leave many multiprocessors without one and K is large. The bits of out
  /// depend on it. Products of one group use it, but for SwiGLU and batch_invariant.
  PartialSums* partial_sums = nullptr;
  Stream stream = {};
};

/// W4A16: out[m, n] = (alpha · global_n) · Σ_k x[m, k] · (e2m1 · scale)[n, k] + bias[n]
///
/// Shapes  x [M, K], BF16 or FP16, stride % 8 == 0; w of one group; out [M, N], any dtype and
///         stride; out must not overlap x. x, w and out on one GPU, aligned to 16 bytes.
/// Units   e2m1 · scale is exact in BF16 and FP16. Sums are FP32, in the tensor cores' way; factors
///         and bias are applied in FP32, and the result is rounded once to the type of `out`. The
///         same bits every time.
/// Throws  ShapeError, ValueError, UnsupportedError, DeviceError.
void gemm_into(MatrixView x, const FragmentWeights& w, MatrixSpan out,
               const TensorCoreGemmOptions& options = {});

/// W4A4: the same with x quantized along its rows, in blocks of 16, any scale layout, a global
/// scale for the tensor or for each row. e2m1 · scale of x goes to the workspace as BF16, exactly.
void gemm_into(QuantizedView x, const FragmentWeights& w, MatrixSpan out,
               const TensorCoreGemmOptions& options);

/// What a product with `x` needs of options.workspace.
std::int64_t gemm_workspace_bytes(const QuantizedShape& x);

inline constexpr int kMostGroups = 1024;                 ///< of grouped_gemm_into()
inline constexpr std::int64_t kMostRoutedDepth = 65536;  ///< K of routed_gemm_into()

/// Every group of rows has weights of its own (a mixture of experts): rows [starts[g], ends[g]) of
/// x times w[g]ᵀ.
///
/// Shapes  x [M, K]; w of G <= kMostGroups groups; `ends`: G of them, on the GPU, where they are
/// neither
///         checked nor waited for; `starts`: G too, or none if every group starts where the one
///         before it ends, the first one at 0. Groups must lie in [0, M], not overlap, and may be
///         empty. out [M, N], whose rows of no group are not touched.
/// Throws  as gemm_into.
void grouped_gemm_into(MatrixView x, const FragmentWeights& w, std::span<const std::int32_t> starts,
                       std::span<const std::int32_t> ends, MatrixSpan out,
                       const TensorCoreGemmOptions& options = {});
void grouped_gemm_into(QuantizedView x, const FragmentWeights& w,
                       std::span<const std::int32_t> starts, std::span<const std::int32_t> ends,
                       MatrixSpan out, const TensorCoreGemmOptions& options);

/// Every choice of every token has weights of its own (a mixture of experts with one token, whose
/// rows need no order): row t · top_k + j of out is a row of x times w[ids[t, j]]ᵀ.
///
/// Shapes  x [T, K], K <= kMostRoutedDepth, whose row t all choices of token t read, or
///         [T · top_k, K], a row each; w of G groups; routing of T tokens, its ids on the GPU,
///         where they are neither checked nor waited for; its weights do not count. out [T · top_k,
///         N]; rows whose id is not in 0 … G - 1 are not touched.
/// Units   as gemm_into; each row reads its group's weights, even if they are those of another one.
/// Throws  as gemm_into; ValueError if options.batch_invariant.
void routed_gemm_into(MatrixView x, const FragmentWeights& w, const Routing& routing,
                      MatrixSpan out, const TensorCoreGemmOptions& options = {});
void routed_gemm_into(QuantizedView x, const FragmentWeights& w, const Routing& routing,
                      MatrixSpan out, const TensorCoreGemmOptions& options);

/// Every row goes to every group: out[t, g, :] = x[t, g, :] · w[g]ᵀ ("bhr,hdr->bhd").
///
/// Shapes  x [T, G·K], group g in columns [g·K, (g+1)·K), or [T, K], shared by all groups;
///         out [T, G·N].
/// Throws  as gemm_into.
void gemm_every_group_into(MatrixView x, const FragmentWeights& w, MatrixSpan out,
                           const TensorCoreGemmOptions& options = {});
void gemm_every_group_into(QuantizedView x, const FragmentWeights& w, MatrixSpan out,
                           const TensorCoreGemmOptions& options);

}  // namespace nvfp4
