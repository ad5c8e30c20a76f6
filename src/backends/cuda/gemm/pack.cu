// Packs codes and scales as fragments_64x64, and unpacks them: one thread block for each tile.
#include "backends/cuda/device/block.cuh"
#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kThreads = kTileWarps * kTileLanes;

/// Returns 8 bytes of codes of a vector and block, for both axes.
__device__ uint2 codes_of(const QuantizedView& w, std::int64_t vector, std::int64_t block) {
  const QuantizedShape& s = w.shape;
  if (s.axis == BlockAxis::rows)
    return __ldg(reinterpret_cast<const uint2*>(w.codes) + vector * s.blocks() + block);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i)
    words[i / 4] |= std::uint32_t{__ldg(w.codes + (block * 8 + i) * s.cols + vector)}
                    << (i % 4 * 8);
  return {words[0], words[1]};
}
__device__ std::uint8_t scale_of(const QuantizedView& w, std::int64_t vector, std::int64_t block) {
  const QuantizedShape& s = w.shape;
  return __ldg(w.scales +
               (s.layout == ScaleLayout::linear && s.axis == BlockAxis::columns
                    ? block * s.cols + vector
                    : scale_offset_of(s.layout, vector, block, s.vectors(), s.blocks())));
}

/// Maps packed rows to rows of W.
struct RowOrder {
  std::int64_t rows;
  std::int64_t interleave;  ///< -1: rows keep their order

  explicit RowOrder(const PackedStorage& w)
      : rows(w.rows()), interleave(w.gate_up() ? w.gate_up()->interleave : -1) {}
  __device__ std::int64_t row(std::int64_t packed) const {
    return interleave < 0 ? packed : gate_up_row(packed, rows / 2, interleave);
  }
};

__global__ void __launch_bounds__(kThreads)
    pack_kernel(const QuantizedView w, std::int64_t first_row, const RowOrder order,
                std::int64_t col_tiles, std::uint8_t* out, unsigned long long* bad_scale) {
  __shared__ __align__(16) TileValues values;
  const std::int64_t tile = blockIdx.x;
  const std::int64_t row0 = tile / col_tiles * kTileRows, block0 = tile % col_tiles * 4;
  const std::int64_t blocks = w.shape.blocks();
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * 4; i += kThreads) {
    // Adjacent threads read adjacent bytes.
    const bool along = w.shape.axis == BlockAxis::rows;
    const int r = along ? i / 4 : i % kTileRows, b = along ? i % 4 : i / kTileRows;
    const std::int64_t vector = first_row + order.row(row0 + r), block = block0 + b;
    const bool inside = row0 + r < order.rows && block < blocks;
    const uint2 codes = inside ? codes_of(w, vector, block) : uint2{0, 0};
    const std::uint8_t scale = inside ? scale_of(w, vector, block) : 0;
    *reinterpret_cast<uint2*>(&values.codes[r][b * 8]) = codes;
    values.scales[r][b] = scale;
    if (bad_scale != nullptr && scale > E4M3::kMaxBits)
      atomicMax(bad_scale, ~static_cast<unsigned long long>(vector * blocks + block));
  }
  __syncthreads();
  std::uint8_t* const to = out + tile * kTileBytes;
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes;
  const int lane = static_cast<int>(threadIdx.x) % kTileLanes;
  std::uint32_t words[4];
  pack_lane(values, warp, lane, words);
  *reinterpret_cast<uint4*>(to + words_at(warp, lane)) = {words[0], words[1], words[2], words[3]};
  for (int i = static_cast<int>(threadIdx.x); i < kTileScaleBytes; i += kThreads) {
    const int r = i / 4, b = i % 4;
    to[scale_at(r, b)] = widen_scale(usable_scale(values.scales[r][b]));
  }
}

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const std::uint8_t* packed, std::int64_t col_tiles, const RowOrder order,
                  const QuantizedSpan w) {
  __shared__ __align__(16) TileValues values;
  const std::int64_t tile = blockIdx.x;
  const std::int64_t row0 = tile / col_tiles * kTileRows, block0 = tile % col_tiles * 4;
  const std::uint8_t* const from = packed + tile * kTileBytes;
  const int warp = static_cast<int>(threadIdx.x) / kTileLanes;
  const int lane = static_cast<int>(threadIdx.x) % kTileLanes;
  const uint4 v = *reinterpret_cast<const uint4*>(from + words_at(warp, lane));
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
  unpack_lane(words, warp, lane, values);
  __syncthreads();
  const std::int64_t blocks = w.shape.blocks();
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * 4; i += kThreads) {
    const int r = i / 4, b = i % 4;
    if (row0 + r >= w.shape.rows || block0 + b >= blocks) continue;
    const std::int64_t at = order.row(row0 + r) * blocks + block0 + b;
    reinterpret_cast<uint2*>(w.codes)[at] =
        *reinterpret_cast<const uint2*>(&values.codes[r][b * 8]);
    w.scales[scale_offset_of(w.shape.layout, order.row(row0 + r), block0 + b, w.shape.rows,
                             blocks)] = narrow_scale(from[scale_at(r, b)]);
  }
}

unsigned tiles_of(const PackedStorage& w) {
  return static_cast<unsigned>(w.row_tiles() * w.col_tiles());
}

/// Copies the global scales. This copy is last: a following GEMM may start before a kernel has
/// ended, but not before a copy has.
void copy_globals(float* to, const float* from, std::int64_t count, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

}  // namespace

void pack_fragments(const PackJob& job) {
  const PackedStorage& to = *job.packed;
  const PackPart& part = job.parts[0];
  const Current current(to.device());
  const cudaStream_t stream = stream_of(job.stream);
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  pack_kernel<<<tiles_of(to), kThreads, 0, stream>>>(
      part.w, part.first, RowOrder(to), to.col_tiles(), to.data() + job.group * to.group_bytes(),
      reinterpret_cast<unsigned long long*>(job.bad_scale));
  check(cudaGetLastError(), "pack_fragments: kernel launch");
  const bool per_row = to.scope() == GlobalScope::vector;
  copy_globals(to.global_scale() + job.group * to.group_globals(),
               part.w.global_scale + (per_row ? part.first : 0), to.group_globals(), stream);
}

void unpack_fragments(const UnpackJob& job) {
  const PackedStorage& from = *job.packed;
  const Current current(from.device());
  const cudaStream_t stream = stream_of(job.stream);
  unpack_kernel<<<tiles_of(from), kThreads, 0, stream>>>(
      from.data() + job.group * from.group_bytes(), from.col_tiles(), RowOrder(from), job.w);
  check(cudaGetLastError(), "unpack_fragments: kernel launch");
  if (job.w.global_scale == nullptr) return;
  copy_globals(job.w.global_scale, from.global_scale() + job.group * from.group_globals(),
               from.group_globals(), stream);
}

}  // namespace nvfp4::cuda
