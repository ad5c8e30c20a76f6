#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backends/gemm_kernels.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/gemm.h"
#include "ops/options.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace nvfp4 {
namespace {

constexpr std::int64_t kCodeBytes = kBlock / 2;

/// Large pages save most of the address translation when the weights are streamed.
std::byte* allocate_weights(std::int64_t bytes) {
  constexpr std::size_t kLargePage = std::size_t{1} << 21;
  const std::size_t align = bytes >= std::int64_t{4} << 20 ? kLargePage : 64;
  const auto size = static_cast<std::size_t>(round_up(bytes, 64));
  void* p = std::aligned_alloc(align, (size + align - 1) / align * align);
  if (p == nullptr) throw std::bad_alloc();
#ifdef __linux__
  if (align == kLargePage) (void)madvise(p, size, MADV_HUGEPAGE);  // a hint
#endif
  return static_cast<std::byte*>(p);
}

/// The 8 code bytes of a block. Those of a column lie a row apart.
void load_codes(const QuantizedView& w, std::int64_t n, std::int64_t b, std::uint8_t* codes) {
  if (w.shape.axis == BlockAxis::rows) {
    std::memcpy(codes, w.codes + n * (w.shape.cols / 2) + b * kCodeBytes, kCodeBytes);
  } else {
    const std::uint8_t* column = w.codes + b * kCodeBytes * w.shape.cols + n;
    for (std::int64_t i = 0; i < kCodeBytes; ++i) codes[i] = column[i * w.shape.cols];
  }
}

/// Row `r` of the panel; the scale bytes are returned or-ed into `seen`, see bad_scale().
void pack_row(const QuantizedView& w, std::int64_t n, std::int64_t r, std::uint8_t* panel) {
  const std::int64_t blocks = w.shape.blocks();
  for (std::int64_t b = 0; b < blocks; ++b) {
    const PanelBlock at = panel_block(b, blocks);
    std::uint8_t codes[kCodeBytes];
    load_codes(w, n, b, codes);
    std::memcpy(panel + at.codes + r * 4, codes, 4);
    std::memcpy(panel + at.codes + (kPanelRows + r) * 4, codes + 4, 4);
    panel[at.scales + r] = w.scales[w.shape.scale_offset(n, b)];
  }
}

/// NaN or sign set.
bool has_bad_scale(const std::uint8_t* panel, std::int64_t blocks) {
  std::uint8_t bad = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::uint8_t* scales = panel + panel_block(b, blocks).scales;
    for (std::int64_t r = 0; r < kPanelRows; ++r) bad |= scales[r] > E4M3::kMaxBits;
  }
  return bad != 0;
}

[[noreturn]] void throw_bad_scale(const QuantizedView& w) {
  for (std::int64_t n = 0; n < w.shape.vectors(); ++n)
    for (std::int64_t b = 0; b < w.shape.blocks(); ++b)
      if (const int scale = w.scales[w.shape.scale_offset(n, b)]; scale > E4M3::kMaxBits)
        throw ValueError(fmt::format(
            "pack_weights: scale of output {}, block {} = 0x{:02X}, must be at most 0x7E (no NaN, "
            "no sign)",
            n, b, scale));
  throw ValueError("pack_weights: w changed while it was read");
}

}  // namespace

void PackedWeights::Free::operator()(std::byte* p) const { std::free(p); }

PackedWeights::PackedWeights(std::int64_t rows, std::int64_t cols, GlobalScope scope)
    : rows_(rows), cols_(cols), scope_(scope) {
  require<ShapeError>(rows >= 1 && cols >= 0 && cols % kBlock == 0,
                      "PackedWeights: [N, K] = [{}, {}], N must be at least 1 and K a multiple of "
                      "16",
                      rows, cols);
  require<ShapeError>(cols <= kMaxMatrixElements / round_up(rows, kPanelRows),
                      "PackedWeights: [N, K] = [{}, {}], more than 2^48 elements", rows, cols);
  if (bytes() > 0) data_.reset(allocate_weights(bytes()));
  global_ = std::make_unique<float[]>(static_cast<std::size_t>(global_count()));
}

void PackedWeights::swap(PackedWeights& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(global_, other.global_);
  std::swap(rows_, other.rows_);
  std::swap(cols_, other.cols_);
  std::swap(scope_, other.scope_);
}

PackedWeights pack_weights(QuantizedView w) {
  require_quantized("pack_weights", "w", w);
  require_cpu("pack_weights", "w", w.device);
  const QuantizedShape& s = w.shape;
  require<ShapeError>(s.block == kBlock, "pack_weights: w has blocks of {}, must be 16", s.block);
  require<ShapeError>(w.global_scale != nullptr, "pack_weights: w.global_scale is null");
  PackedWeights packed(s.vectors(), s.depth(), s.scope);
  std::memcpy(packed.global_scale(), w.global_scale,
              static_cast<std::size_t>(packed.global_count()) * sizeof(float));
  parallel_for(packed.panels(), [&](std::int64_t p) {
    std::uint8_t* panel = packed.data() + p * packed.panel_bytes();
    const std::int64_t n0 = p * kPanelRows;
    const std::int64_t rows = std::min(kPanelRows, packed.rows() - n0);
    if (rows < kPanelRows) std::memset(panel, 0, static_cast<std::size_t>(packed.panel_bytes()));
    for (std::int64_t r = 0; r < rows; ++r) pack_row(w, n0 + r, r, panel);
    if (has_bad_scale(panel, packed.blocks())) throw_bad_scale(w);
  });
  return packed;
}

PackedWeights pack_weights(MatrixView w, const QuantizeOptions& options) {
  return pack_weights(quantize(w, options).view());
}

QuantizedMatrix unpack_weights(const PackedWeights& w) {
  QuantizedMatrix q({.rows = w.rows(), .cols = w.cols(), .scope = w.scope()});
  if (w.rows() == 0) return q;
  std::memcpy(q.global_scale(), w.global_scale(),
              static_cast<std::size_t>(w.global_count()) * sizeof(float));
  parallel_for(w.panels(), [&](std::int64_t p) {
    const std::uint8_t* panel = w.data() + p * w.panel_bytes();
    for (std::int64_t n = p * kPanelRows; n < std::min(w.rows(), (p + 1) * kPanelRows); ++n) {
      const std::int64_t r = n % kPanelRows;
      for (std::int64_t b = 0; b < w.blocks(); ++b) {
        const PanelBlock at = panel_block(b, w.blocks());
        std::uint8_t* codes = q.codes() + n * (w.cols() / 2) + b * kCodeBytes;
        std::memcpy(codes, panel + at.codes + r * 4, 4);
        std::memcpy(codes + 4, panel + at.codes + (kPanelRows + r) * 4, 4);
        q.scales()[n * w.blocks() + b] = panel[at.scales + r];
      }
    }
  });
  return q;
}

}  // namespace nvfp4
