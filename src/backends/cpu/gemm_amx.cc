// W4A16 for x in BF16 by AMX: 16 x 16 sums and 32 of K in one instruction.
#include "backends/cpu/kernels.h"
#include "platform/process.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm_amx.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, before highway.h
#include "hwy/highway.h"
// Included after foreach_target.h, so that it is compiled for each target:
#include "backends/cpu/bf16-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16,amx-tile,amx-bf16")
#else
HWY_BEFORE_NAMESPACE();
#endif
namespace nvfp4::cpu::HWY_NAMESPACE {
#if HWY_TARGET <= HWY_AVX3_DL && defined(__linux__)
namespace {

/// Rows of two tiles of x. With two tiles of outputs they make four tiles of sums.
constexpr int kTileRows = 32;
constexpr int kTogether = 2;  // blocks in a tile

/// The layout of LDTILECFG. Source: Intel 64 and IA-32 Architectures Software Developer's Manual.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Returns the configuration: tiles 0 to 3 are sums, 4 and 5 x, 6 and 7 weights. `blocks` is 1 or
/// 2.
TileConfig config_of(int rows, int blocks) {
  TileConfig c;
  const auto set = [&](int tile, int tile_rows, int bytes) {
    c.rows[tile] = static_cast<std::uint8_t>(tile_rows);
    c.row_bytes[tile] = static_cast<std::uint16_t>(tile_rows > 0 ? bytes : 0);
  };
  const int low = HWY_MIN(rows, 16), high = rows - low;
  set(0, low, 64);
  set(1, low, 64);
  set(2, high, 64);
  set(3, high, 64);
  set(4, low, 32 * blocks);
  set(5, high, 32 * blocks);
  set(6, 8 * blocks, 64);
  set(7, 8 * blocks, 64);
  return c;
}

/// Multiplies steps of `kBlocks` blocks.
template <int kBlocks, bool kHigh>
void multiply(const TileBlock* w, std::int64_t steps, const Record* x, int rows, float* sums,
              std::int64_t stride) {
  const std::int64_t sum_bytes = stride * 4;
  float* const low = sums;
  float* const high = sums + 16 * stride;
  _tile_loadd(0, low, sum_bytes);
  _tile_loadd(1, low + 16, sum_bytes);
  if (kHigh) {
    _tile_loadd(2, high, sum_bytes);
    _tile_loadd(3, high + 16, sum_bytes);
  }
  constexpr std::int64_t kRowBytes = kBlocks * static_cast<std::int64_t>(sizeof(Record));
  for (std::int64_t i = 0; i < steps; ++i, w += kBlocks, x += kBlocks * rows) {
    _tile_loadd(6, &w->w[0][0], 128);
    _tile_loadd(4, x, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, &w->w[0][1], 128);
    _tile_dpbf16ps(1, 4, 7);
    if (kHigh) {
      _tile_loadd(5, x + 16 * kBlocks, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, low, sum_bytes);
  _tile_stored(1, low + 16, sum_bytes);
  if (kHigh) {
    _tile_stored(2, high, sum_bytes);
    _tile_stored(3, high + 16, sum_bytes);
  }
}

template <int kBlocks>
void run_tiles(const std::byte* decoded, std::int64_t steps, const std::byte* records, int rows,
               float* sums, std::int64_t stride) {
  if (steps == 0) return;
  const TileConfig config = config_of(rows, kBlocks);
  // The intrinsics do not tell the compiler which memory they access.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  const auto* w = reinterpret_cast<const TileBlock*>(decoded);
  const auto* x = reinterpret_cast<const Record*>(records);
  if (rows > 16)
    multiply<kBlocks, true>(w, steps, x, rows, sums, stride);
  else
    multiply<kBlocks, false>(w, steps, x, rows, sums, stride);
  _tile_release();
  asm volatile("" : : : "memory");
}

void tile(const std::byte* decoded, std::int64_t blocks, const std::byte* records, int rows,
          float* sums, std::int64_t stride) {
  const std::int64_t pairs = blocks / kTogether, done = pairs * kTogether;
  run_tiles<kTogether>(decoded, pairs, records, rows, sums, stride);
  run_tiles<1>(decoded + done * static_cast<std::int64_t>(sizeof(TileBlock)), blocks - done,
               records + done * rows * static_cast<std::int64_t>(sizeof(Record)), rows, sums,
               stride);
}

/// Reports whether the CPU has AMX for BF16 and the operating system allows this process to use it.
bool can_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  const bool has_bf16 = (d >> 22 & 1) != 0, has_tiles = (d >> 24 & 1) != 0;
  return has_bf16 && has_tiles && __builtin_cpu_supports("avx512bf16") &&
         platform::allow_amx_tiles();
}

}  // namespace

/// Measured: on these CPUs tiles of W4A4 are faster for fewer rows than on others with the same
/// instructions.
constexpr int kMostDirectRows = 12;

/// Replaces the tile kernels. For few rows the kernels without AMX remain, because they dequantize
/// less.
bool fill_amx_here(Backend& backend) {
  if (!can_use_amx()) return false;
  backend.w4a4.direct.most_rows = kMostDirectRows;
  backend.w4a16_bf16.tile = {.records = {kTileRows, sizeof(Record), prepare<kTogether>},
                             .panels = kWide,
                             .decoded_bytes = static_cast<std::int64_t>(sizeof(TileBlock)) / kWide,
                             .decode = decode,
                             .run = tile};
  return true;
}
#else
bool fill_amx_here(Backend&) { return false; }
#endif  // HWY_AVX3_DL
}  // namespace nvfp4::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nvfp4::cpu {
HWY_EXPORT(fill_amx_here);
bool fill_amx(Backend& backend) { return HWY_DYNAMIC_DISPATCH(fill_amx_here)(backend); }
}  // namespace nvfp4::cpu
#endif
