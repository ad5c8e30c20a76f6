// Tiles of a matrix as runs of blocks: along rows (contiguous) and along columns (strided).
#if defined(NVFP4_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NVFP4_TILES_INL_H
#undef NVFP4_TILES_INL_H
#else
#define NVFP4_TILES_INL_H
#endif

#include <vector>

#include "backends/backend.h"
#include "backends/cpu/encode-inl.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/panels-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace nvfp4::cpu::HWY_NAMESPACE {

/// Encoders, one for each quantizer, each in its own file.
void encode_max(const EncodeJob& job, const Tile& tile);
void encode_four_over_six(const EncodeJob& job, const Tile& tile);
void encode_mse(const EncodeJob& job, const Tile& tile);
void encode_hessian(const EncodeJob& job, const Tile& tile);

#if NVFP4_HAVE_LANES

/// Distance of prefetches. Loads of rows are too sparse for the hardware prefetcher. From one page
/// on, prefetching costs more than it gains.
constexpr std::int64_t kPrefetchBytes = 2048;

constexpr std::int64_t kLine = 64;  ///< bytes of a prefetch

/// Blocks b0 + lane of one row, or of several contiguous rows as one.
template <class T, int B>
struct RowBlocks {
  /// The batches of a group are far apart, because memory is faster with several streams.
  static constexpr bool kStreams = true;
  static constexpr bool kLoadsPairs = std::is_same_v<T, BF16>;
  const T* x;            // first block of the run
  const float* weights;  // weights of the first block, or null
  std::uint8_t* codes;   // codes of the first block
  float divisor, multiplier;
  const std::byte* next;    // data to prefetch
  std::int64_t next_bytes;  // its bytes for each block
  bool stream;              // whole batches of codes bypass the caches

  template <bool kPairs>
  HWY_INLINE void load(std::int64_t first, std::int64_t n, Batch<B, kPairs>& batch) const {
    const std::int64_t lanes = static_cast<std::int64_t>(kLanes);
    const std::int64_t step = next_bytes * lanes / batch.kRows;
    if (step <= kLine) {
      batch.next = next + first * next_bytes;
      batch.next_step = step;
    } else {
      for (std::int64_t i = 0; i < next_bytes * lanes; i += kLine)
        hwy::Prefetch(next + first * next_bytes + i);
    }
    const T* from = x + first * B;
    const float* w = weights == nullptr ? nullptr : weights + first * B;
    alignas(64) T part[B * kLanes];
    alignas(64) float part_weights[B * kLanes];
    if (HWY_UNLIKELY(n < lanes)) {
      from = copy_blocks<B>(from, B, n, part);
      if (w != nullptr) w = copy_blocks<B>(w, B, n, part_weights);
    }
    load_blocks<B>(from, batch.x);
    if (w != nullptr) load_blocks<B>(w, batch.weights);
    hn::Store(set_f32(divisor), F32(), batch.divisor);
    hn::Store(set_f32(multiplier), F32(), batch.multiplier);
  }
  template <bool kPairs>
  HWY_INLINE void store(std::int64_t first, std::int64_t n, const Batch<B, kPairs>& batch) const {
    if (n == static_cast<std::int64_t>(kLanes)) {
      auto* to = reinterpret_cast<std::uint32_t*>(codes + first * (B / 2));
      if constexpr (B == 16) {
        alignas(64) std::uint32_t both[2 * kLanes];
        hn::StoreInterleaved2(hn::Load(U32(), batch.packed), hn::Load(U32(), batch.packed + kLanes),
                              U32(), stream ? both : to);
        if (stream)
          for (std::size_t i = 0; i < 2 * kLanes; i += kLanes)
            hn::Stream(hn::Load(U32(), both + i), U32(), to + i);
      } else {
        hn::StoreInterleaved4(hn::Load(U32(), batch.packed), hn::Load(U32(), batch.packed + kLanes),
                              hn::Load(U32(), batch.packed + 2 * kLanes),
                              hn::Load(U32(), batch.packed + 3 * kLanes), U32(), to);
      }
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) store_one(first + i, batch, static_cast<std::size_t>(i));
  }
  template <bool kPairs>
  void store_one(std::int64_t index, const Batch<B, kPairs>& batch, std::size_t lane) const {
    for (std::size_t word = 0; word < B / 8; ++word)
      std::memcpy(codes + index * (B / 2) + static_cast<std::int64_t>(4 * word),
                  batch.packed + word * kLanes + lane, 4);
  }
};

/// Block b of columns v0 + lane.
template <class T, int B>
struct ColumnBlocks {
  static constexpr bool kStreams = false, kLoadsPairs = false;
  const T* x;  // first row of the block, first column
  std::int64_t stride;
  const float* weights;  // weights of the block's B rows, or null
  std::uint8_t* codes;   // first row of the block's codes, first column
  std::int64_t code_stride;
  const float* divisor;  // one, or one for each column
  std::int64_t divisor_step;

  void load(std::int64_t first, std::int64_t n, Batch<B>& batch) const {
    const std::int64_t lanes = static_cast<std::int64_t>(kLanes);
    for (int i = 0; i < B; ++i) {
      float* to = batch.x + static_cast<std::size_t>(i) * kLanes;
      const T* from = x + i * stride + first;
      if (n == lanes) {
        hn::Store(load_lanes(from), F32(), to);
      } else {
        alignas(64) T part[kLanes] = {};
        std::memcpy(part, from, static_cast<std::size_t>(n) * sizeof(T));
        hn::Store(load_lanes(part), F32(), to);
      }
      if (weights != nullptr)
        hn::Store(set_f32(weights[i]), F32(), batch.weights + static_cast<std::size_t>(i) * kLanes);
    }
    for (std::int64_t i = 0; i < lanes; ++i)
      batch.divisor[i] = divisor[divisor_step * (first + (i < n ? i : 0))];
    hn::Store(hn::Div(set_f32(1.0f), hn::Load(F32(), batch.divisor)), F32(), batch.multiplier);
  }
  void store(std::int64_t first, std::int64_t n, const Batch<B>& batch) const {
    const hn::Rebind<std::uint8_t, F32> d8;
    alignas(64) std::uint8_t bytes[kLanes];
    for (int i = 0; i < B / 2; ++i) {
      const VU word = hn::Load(U32(), batch.packed + static_cast<std::size_t>(i / 4) * kLanes);
      const VU byte = hn::And(hn::ShiftRightSame(word, 8 * (i % 4)), set_u32(0xFF));
      hn::Store(hn::DemoteTo(d8, hn::BitCast(I32(), byte)), d8, bytes);
      std::memcpy(codes + i * code_stride + first, bytes, static_cast<std::size_t>(n));
    }
  }
  void store_one(std::int64_t index, const Batch<B>& batch, std::size_t lane) const {
    for (std::size_t i = 0; i < B / 2; ++i)
      codes[static_cast<std::int64_t>(i) * code_stride + index] =
          static_cast<std::uint8_t>(batch.packed[i / 4 * kLanes + lane] >> 8 * (i % 4));
  }
};

HWY_INLINE void store_scales(const std::uint32_t* scale, std::int64_t n, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, F32> d8;
  const auto v = hn::DemoteTo(d8, hn::BitCast(I32(), hn::Load(U32(), scale)));
  if (HWY_LIKELY(n == static_cast<std::int64_t>(kLanes))) return hn::StoreU(v, d8, out);
  alignas(64) std::uint8_t bytes[kLanes];
  hn::Store(v, d8, bytes);
  std::memcpy(out, bytes, static_cast<std::size_t>(n));
}

/// Calls f(first, step, count) for groups of n blocks. Batch g of a group starts at block first + g
/// step.
template <class Blocks, class F>
HWY_INLINE void for_each_group(std::int64_t n, F&& f) {
  constexpr auto kStep = static_cast<std::int64_t>(kLanes);
  const std::int64_t part = Blocks::kStreams ? n / (kStep * kGroup) * kStep : 0;
  for (std::int64_t i = 0; i < part; i += kStep) f(i, part, kGroup);
  for (std::int64_t i = part * kGroup; i < n; i += kStep * kGroup)
    f(i, kStep, static_cast<int>(HWY_MIN(kGroup, ceil_div(n - i, kStep))));
}

/// Returns how many of n blocks belong to the batch that starts at block i.
HWY_INLINE std::int64_t lanes_of(std::int64_t n, std::int64_t i) {
  return HWY_MIN(static_cast<std::int64_t>(kLanes), n - i);
}

/// Encodes n blocks; scales[i] is that of block i. encode(batches, count) encodes the batches.
template <int B, class Blocks, class Encode>
void encode_run(const Blocks& blocks, std::int64_t n, std::uint8_t* scales, Encode encode) {
  Batch<B> batches[kGroup];
  for_each_group<Blocks>(n, [&](std::int64_t first, std::int64_t step, int count) {
    for (int g = 0; g < count; ++g)
      blocks.load(first + g * step, lanes_of(n, first + g * step), batches[g]);
    encode(batches, count);
    for (int g = 0; g < count; ++g) {
      const std::int64_t i = first + g * step;
      blocks.store(i, lanes_of(n, i), batches[g]);
      store_scales(batches[g].scale, lanes_of(n, i), scales + i);
    }
  });
}

template <class Kernel, class T, int B>
void encode_rows(const EncodeJob& job, const Tile& tile) {
  const QuantizedShape& s = job.out.shape;
  const std::int64_t blocks = tile.b1 - tile.b0;
  const bool linear = s.layout == ScaleLayout::linear;
  const T* x = static_cast<const T*>(job.x.data) + tile.b0 * B;
  // Contiguous rows with one global scale and no weights are one long run.
  const bool joined = linear && blocks == s.blocks() && job.x.stride == job.x.cols &&
                      s.scope == GlobalScope::tensor && job.weights == nullptr;
  const std::int64_t runs = joined ? 1 : tile.v1 - tile.v0;
  const std::int64_t length = joined ? blocks * (tile.v1 - tile.v0) : blocks;
  const bool stream = Kernel::kStoresOnce && B == 16 && s.code_bytes() > kBeyondCaches;
  std::vector<std::uint8_t> row(linear ? 0 : static_cast<std::size_t>(blocks));
  for (std::int64_t i = 0; i < runs; ++i) {
    const std::int64_t v = tile.v0 + i;
    const float divisor = job.divisor_of(v);
    const T* from = x + (v - job.first_row) * job.x.stride;
    const std::byte* next = reinterpret_cast<const std::byte*>(from) + kPrefetchBytes;
    std::int64_t next_bytes = sizeof(T) * B;
    if (job.next != nullptr && blocks > 0) {
      next = job.next + i * job.next_stride;
      next_bytes = job.next_bytes / blocks;
    }
    std::uint8_t* codes = job.out.codes + v * (s.cols / 2) + tile.b0 * (B / 2);
    const RowBlocks<T, B> run{
        from,           job.weights ? job.weights + tile.b0 * B : nullptr,
        codes,          divisor,
        1.0f / divisor, next,
        next_bytes,     stream && reinterpret_cast<std::uintptr_t>(codes) % 64 == 0};
    std::uint8_t* scales = linear ? job.out.scales + v * s.blocks() + tile.b0 : row.data();
    Kernel::template run<B>(run, length, job, scales);
    if (!linear)
      visit_layout(s.layout, [&](auto layout) {
        for (std::int64_t b = 0; b < blocks; ++b)
          job.out.scales[decltype(layout)::offset(v, tile.b0 + b, s.rows, s.blocks())] =
              row[static_cast<std::size_t>(b)];
      });
  }
  if (stream) hwy::FlushStream();
}

template <class Kernel, class T, int B>
void encode_columns(const EncodeJob& job, const Tile& tile) {
  const QuantizedShape& s = job.out.shape;
  const bool linear = s.layout == ScaleLayout::linear;
  const std::int64_t columns = tile.v1 - tile.v0;
  const bool each = s.scope == GlobalScope::vector;
  std::vector<std::uint8_t> row(linear ? 0 : static_cast<std::size_t>(columns));
  for (std::int64_t b = tile.b0; b < tile.b1; ++b) {
    const ColumnBlocks<T, B> run{static_cast<const T*>(job.x.data) + b * B * job.x.stride + tile.v0,
                                 job.x.stride,
                                 job.weights ? job.weights + b * B : nullptr,
                                 job.out.codes + b * (B / 2) * s.cols + tile.v0,
                                 s.cols,
                                 job.divisors + (each ? tile.v0 : 0),
                                 each ? 1 : 0};
    std::uint8_t* scales = linear ? job.out.scales + b * s.cols + tile.v0 : row.data();
    Kernel::template run<B>(run, columns, job, scales);
    if (!linear)
      for (std::int64_t v = 0; v < columns; ++v)
        job.out.scales[s.scale_offset(tile.v0 + v, b)] = row[static_cast<std::size_t>(v)];
  }
}

template <class Kernel, class T>
void encode_dtype(const EncodeJob& job, const Tile& tile) {
  if (job.panels != nullptr) return encode_panels<Kernel, T>(job, tile);
  const bool rows = job.out.shape.axis == BlockAxis::rows;
  if constexpr (Kernel::kBlocksOf32) {
    if (job.out.shape.block == 32)
      return rows ? encode_rows<Kernel, T, 32>(job, tile)
                  : encode_columns<Kernel, T, 32>(job, tile);
  }
  return rows ? encode_rows<Kernel, T, 16>(job, tile) : encode_columns<Kernel, T, 16>(job, tile);
}

/// Encodes a tile. Kernel::run<B>(blocks, n, job, scales) encodes n blocks of B; scales[i] is that
/// of block i. kStoresOnce: it never rewrites stored codes.
template <class Kernel>
void encode_tile(const EncodeJob& job, const Tile& tile) {
  visit_dtype(job.x.dtype, [&](auto type) { encode_dtype<Kernel, decltype(type)>(job, tile); });
}

#endif  // NVFP4_HAVE_LANES
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NVFP4_TILES_INL_H
