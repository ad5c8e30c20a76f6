#include "backends/cuda/gemm/fragment_gemm.h"

#include <limits>
#include <vector>

#include "backends/cuda/gemm/choose_tile.h"
#include "backends/cuda/gemm/fragment_layout.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// Asked of the runtime, so that nothing links against the driver.
EncodeTiled tensor_map_encoder() {
  static const EncodeTiled encoder = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned kSince = 12000;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince,
                                           cudaEnableDefault, &found),
          "cudaGetDriverEntryPointByVersion");
    require<DeviceError>(found == cudaDriverEntryPointSuccess && entry != nullptr,
                         "gemm: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return encoder;
}

/// Of 16-bit elements, whose innermost dimension has no stride.
template <std::size_t kRank>
CUtensorMap encode(DType type, const void* data, const cuuint64_t (&dims)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   const cuuint32_t (&steps)[kRank],
                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  CUtensorMap map;
  const CUresult status = tensor_map_encoder()(
      &map,
      type == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(data), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require<DeviceError>(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error {}",
                       static_cast<int>(status));
  return map;
}

/// x [rows, groups · K] as [group][chunk][row][column]: one copy brings the same rows of several
/// chunks. If the last chunk is not whole, columns past the end of a group must not be read, so the
/// chunks are one long row, and a copy brings one of them.
CUtensorMap make_map(const MatrixView& x, std::int64_t k, const FragmentGemm& p,
                     const GemmTile& tile) {
  const bool of_group = p.x_of_group, whole_chunks = p.x_whole_chunks;
  constexpr std::uint64_t kChunkBytes = kTileCols * 2;
  const auto size = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t groups = of_group ? size(x.cols / k) : 1;
  const cuuint64_t dims[4] = {whole_chunks ? kTileCols : size(k), size(x.rows),
                              whole_chunks ? size(k / kTileCols) : 1, groups};
  const cuuint64_t strides[3] = {size(x.stride) * 2, kChunkBytes, size(k) * 2};
  const int chunks = whole_chunks ? box_chunks(tile, p.x_box) : 1;
  const cuuint32_t box[4] = {kTileCols, static_cast<cuuint32_t>(p.x_box),
                             static_cast<cuuint32_t>(chunks), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encode(x.dtype, x.data, dims, strides, box, steps);
}

/// out [rows, columns], as its warpgroups store it: boxes of so many tokens and 64 columns,
/// or the 32 that SwiGLU makes of them.
CUtensorMap make_out_map(const MatrixSpan& out, int tokens, bool swiglu) {
  const auto size = [](std::int64_t v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t dims[2] = {size(out.cols), size(out.rows)};
  const cuuint64_t strides[1] = {size(out.stride) * 2};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(swiglu ? kTileRows / 2 : kTileRows),
                             static_cast<cuuint32_t>(tokens)};
  const cuuint32_t steps[2] = {1, 1};
  return encode(out.dtype, out.data, dims, strides, box, steps,
                swiglu ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B);
}

void require_hopper(Device device) {
  const int major = compute_major(device);
  require<UnsupportedError>(
      major == 9, "gemm: {} is sm_{}0, products with fragments_64x64 weights run on sm_90 only",
      device_name(device), major);
}

/// What is chosen; a model has the same problems over and over, and to choose takes some 20 µs.
const std::array<TilePart, 2>& chosen_parts(const TileProblem& problem) {
  struct Chosen {
    TileProblem problem;
    std::array<TilePart, 2> parts;
  };
  constexpr std::size_t kKept = 64;
  thread_local std::vector<Chosen> kept;
  thread_local std::size_t oldest = 0;
  for (const Chosen& c : kept)
    if (c.problem == problem) return c.parts;
  const Chosen chosen{problem, choose_parts(problem)};
  if (kept.size() < kKept) return kept.emplace_back(chosen).parts;
  Chosen& replaced = kept[oldest++ % kKept];
  replaced = chosen;
  return replaced.parts;
}

/// What was asked for, or what is chosen.
std::array<TilePart, 2> parts_of(const GemmTile& tile, const TileProblem& problem) {
  if (tile.tokens == 0) return chosen_parts(problem);
  require<ValueError>(is_tile(tile), "gemm: tile = {} tokens, {} rows, {} splits does not exist",
                      tile.tokens, tile.rows, tile.splits);
  require<ValueError>(tile.next >= 0, "gemm: tile.next = {} must not be negative", tile.next);
  require<ValueError>(tile.early >= 0, "gemm: tile.early = {} must not be negative", tile.early);
  require<ValueError>(tile.help >= 0, "gemm: tile.help = {} must not be negative", tile.help);
  require<ValueError>(tile.help == 0 || can_help(problem, tile),
                      "gemm: tile.help = {} is not for {} tokens, {} rows, {} splits, N = {}, K = "
                      "{}{}",
                      tile.help, tile.tokens, tile.rows, tile.splits, problem.n, problem.k,
                      problem.helped ? "" : " without partial_sums");
  require<ValueError>(is_possible(problem, tile),
                      "gemm: tile = {} tokens, {} rows, {} splits is not for K = {}{}{}",
                      tile.tokens, tile.rows, tile.splits, problem.k,
                      problem.swiglu ? " and SwiGLU" : "", problem.routed ? " and a routing" : "");
  require<ValueError>(!problem.batch_invariant || is_batch_invariant(tile),
                      "gemm: tile = {} tokens, {} rows, {} splits is not batch-invariant",
                      tile.tokens, tile.rows, tile.splits);
  return {{{problem.rows, tile}, {}}};
}

/// Where the outputs of SwiGLU go.
void set_swiglu(const FragmentGemmJob& job, FragmentGemm& p) {
  p.limit = job.limit;
  p.interleave = job.w->gate_up()->interleave;
  if (job.quantized.codes == nullptr) return;
  p.codes = job.quantized.codes;
  p.scales = job.quantized.scales;
  p.scale_layout = job.quantized.shape.layout;
  p.out_globals.of_vectors = job.quantized.shape.scope == GlobalScope::vector;
  if (job.global.device.type == DeviceType::cuda)
    p.out_globals.given = job.global.data;
  else
    p.out_globals.value = job.global[0];
}

auto launcher(DType type, bool swiglu) {
  if (swiglu) return type == DType::bf16 ? launch_swiglu_gemm_bf16 : launch_swiglu_gemm_f16;
  return type == DType::bf16 ? launch_gemm_bf16 : launch_gemm_f16;
}

/// Whether out can be written 16 bytes at a time: rows start there, and what is N columns ends
/// there.
bool is_wide(const MatrixSpan& out, std::int64_t group_cols) {
  const std::int64_t sixteen = 16 / dtype_size(out.dtype);
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && out.stride % sixteen == 0 &&
         group_cols % sixteen == 0;
}

}  // namespace

void fragment_gemm(const FragmentGemmJob& job) {
  const FragmentWeights& w = *job.w;
  require_hopper(w.device());
  const MatrixView& x = job.x;
  const Current current(w.device());
  if (!job.global.empty()) {
    clear_padding(job.quantized, job.options.stream);
    store_global_scales(job.global, job.quantized, job.options.stream);
  }
  const bool grouped = job.ends != nullptr, routed = job.routing != nullptr;
  const std::int64_t out_rows = routed ? job.routing->rows * job.routing->top_k : x.rows;
  if (out_rows == 0) return;
  const TensorCoreGemmOptions& options = job.options;
  const TileProblem problem{.n = w.rows(),
                            .k = w.cols(),
                            .rows = routed ? 1 : x.rows,
                            .groups = routed ? out_rows : w.groups(),
                            .grouped = grouped,
                            .routed = routed,
                            .multiprocessors = multiprocessors(w.device()),
                            .batch_invariant = options.batch_invariant,
                            .swiglu = w.gate_up().has_value(),
                            .helped = options.partial_sums != nullptr};
  FragmentGemm p;
  p.weights = w.data();
  p.group_bytes = w.group_bytes();
  p.row_tiles = static_cast<int>(w.row_tiles());
  p.chunks = static_cast<int>(w.col_tiles());
  p.n = static_cast<int>(w.rows());
  p.w_global = w.global_scale();
  p.w_global_per_row = w.scope() == GlobalScope::vector;
  p.x_global = job.x_global;
  p.x_global_per_row = job.x_global_per_row;
  p.alpha = options.group_alpha.empty() ? nullptr : options.group_alpha.data();
  p.factor = options.alpha;
  p.bias = options.bias.empty() ? nullptr : options.bias.data();
  p.groups = static_cast<int>(w.groups());
  p.starts = job.starts;
  p.ends = job.ends;
  if (routed) p.routing = *job.routing;
  p.rows_of_token = static_cast<int>(out_rows / x.rows);
  p.ends_settled = options.ends_settled;
  p.all_rows = static_cast<int>(out_rows);
  p.x = x.data;
  p.x_stride = x.stride;
  p.k = static_cast<int>(w.cols());
  p.x_whole_chunks = w.cols() % kTileCols == 0;
  p.x_of_group = x.cols != w.cols();
  p.out_group_cols = grouped || routed ? 0 : static_cast<int>(w.rows());
  p.out = job.out.data;
  p.out_type = job.out.dtype;
  p.out_stride = job.out.stride;
  p.wide_stores = is_wide(job.out, w.rows());
  if (w.gate_up()) set_swiglu(job, p);

  p.rows = 0;
  for (const TilePart& part : parts_of(options.tile, problem)) {
    if (part.rows == 0) break;
    p.first_row = p.rows;
    p.rows += static_cast<int>(part.rows);
    p.splits = part.tile.splits;
    p.next = part.tile.next;
    p.early = part.tile.early > 0 ? part.tile.early : std::numeric_limits<int>::max();
    if (!routed) p.x_box = box_rows(part.tile, grouped ? x.rows : part.rows);
    TileProblem of_part = problem;
    of_part.rows = part.rows;
    const std::int64_t blocks = block_count(of_part, part.tile);
    require<UnsupportedError>(
        blocks < std::int64_t{1} << 31,
        "gemm: {} groups of {} rows and N = {} need {} blocks, at most 2^31 - 1", problem.groups,
        problem.rows, w.rows(), blocks);
    TensorMaps maps;
    if (part.tile.tokens != kOwnXTokens && !routed) maps.x = make_map(x, w.cols(), p, part.tile);
    p.store_tiles = stores_tiles(part.tile) &&
                    (part.rows >= part.tile.tokens || (grouped && stores_boxes(part.tile))) &&
                    p.wide_stores && p.codes == nullptr && job.out.dtype == x.dtype &&
                    !job.x_global_per_row;
    p.help = part.tile.help;
    p.helpers = static_cast<int>(helper_count(of_part, part.tile));
    if (p.helpers > 0) {
      p.help_flags = static_cast<std::uint32_t*>(options.partial_sums->data());
      p.help_sums = static_cast<float*>(options.partial_sums->data()) + kMostSlices;
    }
    p.weights_policy = reads_weights_once(of_part, part.tile) ? kEvictFirst : kEvictNormal;
    p.out_box = out_box_tokens(part.tile, grouped);
    if (p.store_tiles) maps.out = make_out_map(job.out, p.out_box, problem.swiglu);
    launcher(x.dtype, w.gate_up().has_value())(
        part.tile, maps, p, static_cast<int>(blocks) + p.helpers, stream_of(options.stream));
  }
}

}  // namespace nvfp4::cuda
