#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backends/gemm_kernels.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/gemm.h"
#include "ops/measure.h"
#include "ops/options.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace nvfp4 {
namespace {

constexpr std::int64_t kCodeBytes = kBlock / 2;

constexpr std::int64_t kLargePage = 2 << 20;

/// Large pages save most of the address translation when the weights are streamed.
std::byte* allocate_weights(std::int64_t bytes) {
  const std::int64_t align = bytes >= 2 * kLargePage ? kLargePage : 64;
  const auto size = static_cast<std::size_t>(round_up(bytes, align));
  void* p = std::aligned_alloc(static_cast<std::size_t>(align), size);
  if (p == nullptr) throw std::bad_alloc();
#ifdef __linux__
  if (align == kLargePage) (void)madvise(p, size, MADV_HUGEPAGE);  // a hint
#endif
  return static_cast<std::byte*>(p);
}

/// Threads that reach a new page at the same time each clear one, all but one of them in vain:
/// here every page has one thread.
void map_pages(std::byte* p, std::int64_t bytes) {
  if (bytes < 2 * kLargePage) return;
  parallel_for(ceil_div(bytes, kLargePage),
               [&](std::int64_t i) { p[i * kLargePage] = std::byte{0}; });
}

/// An output of one of the weights that are packed.
struct Source {
  const QuantizedView* w = nullptr;  ///< null past the last output
  std::int64_t n = 0;
};
using PanelSources = std::array<Source, kPanelRows>;

/// The 8 code bytes of a block. Those of a column lie a row apart.
void load_codes(const QuantizedView& w, std::int64_t n, std::int64_t b, std::uint8_t* codes) {
  if (w.shape.axis == BlockAxis::rows) {
    std::memcpy(codes, w.codes + n * (w.shape.cols / 2) + b * kCodeBytes, kCodeBytes);
  } else {
    const std::uint8_t* column = w.codes + b * kCodeBytes * w.shape.cols + n;
    for (std::int64_t i = 0; i < kCodeBytes; ++i) codes[i] = column[i * w.shape.cols];
  }
}

using Words = std::uint32_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(16)));

template <class V>
V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Transposes four words of four rows into rows that are 16 words apart.
void store_transposed(Words r0, Words r1, Words r2, Words r3, std::uint8_t* to) {
  const Words a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const Words c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Words d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  const Words out[4] = {
      __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
      __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + i * 64, &out[i], 16);
}

/// Four blocks of 16 rows of a plain matrix from row n0 on.
void pack_whole_group(const QuantizedView& w, std::int64_t n0, std::int64_t b,
                      std::uint8_t* group) {
  const std::int64_t code_stride = w.shape.cols / 2, scale_stride = w.shape.blocks();
  const std::uint8_t* codes = w.codes + n0 * code_stride + b * kCodeBytes;
  const std::uint8_t* scales = w.scales + n0 * scale_stride + b;
  for (std::int64_t r = 0; r < kPanelRows; r += 4) {
    Bytes four;  // scales of four rows
    for (std::int64_t i = 0; i < 4; ++i)
      std::memcpy(reinterpret_cast<std::uint8_t*>(&four) + 4 * i, scales + (r + i) * scale_stride,
                  4);
    four =
        __builtin_shufflevector(four, four, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (std::int64_t i = 0; i < 4; ++i)
      std::memcpy(group + i * kPanelRows + r, reinterpret_cast<std::uint8_t*>(&four) + 4 * i, 4);
    const std::uint8_t* from = codes + r * code_stride;
    for (std::int64_t half = 0; half < 2; ++half)
      store_transposed(load<Words>(from + half * 16), load<Words>(from + code_stride + half * 16),
                       load<Words>(from + 2 * code_stride + half * 16),
                       load<Words>(from + 3 * code_stride + half * 16),
                       group + 64 + half * 256 + r * 4);
  }
}

/// The blocks [b, b + n) of 16 outputs: a group, or what is left of one. Missing outputs are zero.
void pack_group(const PanelSources& sources, std::int64_t b, std::int64_t n, std::uint8_t* group) {
  std::uint32_t words[kPanelRows][kGroupBlocks * 2] = {};
  std::uint8_t scales[kPanelRows][kGroupBlocks] = {};
  for (std::size_t r = 0; r < sources.size(); ++r) {
    if (sources[r].w == nullptr) break;
    const QuantizedView& w = *sources[r].w;
    const std::int64_t output = sources[r].n;
    for (std::int64_t i = 0; i < n; ++i) {
      load_codes(w, output, b + i, reinterpret_cast<std::uint8_t*>(words[r] + 2 * i));
      scales[r][i] = w.scales[w.shape.scale_offset(output, b + i)];
    }
  }
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t r = 0; r < kPanelRows; ++r) *group++ = scales[r][i];
  for (std::int64_t i = 0; i < 2 * n; ++i) {
    std::uint32_t row[kPanelRows];
    for (std::int64_t r = 0; r < kPanelRows; ++r) row[r] = words[r][i];
    std::memcpy(group, row, sizeof row);
    group += sizeof row;
  }
}

void pack_panel(const PanelSources& sources, std::int64_t blocks, std::uint8_t* panel) {
  const QuantizedView& w = *sources[0].w;
  const bool plain = sources.back().w == &w && w.shape.axis == BlockAxis::rows &&
                     w.shape.layout == ScaleLayout::linear;
  for (std::int64_t b = 0; b < blocks; b += kGroupBlocks) {
    const std::int64_t n = std::min(kGroupBlocks, blocks - b);
    std::uint8_t* group = panel + b / kGroupBlocks * kGroupBytes;
    if (plain && n == kGroupBlocks)
      pack_whole_group(w, sources[0].n, b, group);
    else
      pack_group(sources, b, n, group);
  }
}

/// Outputs [n0, n0 + 16) of the parts, which follow one another.
PanelSources panel_sources(std::span<const QuantizedView> parts, std::int64_t n0) {
  PanelSources sources;
  std::int64_t n = n0;
  std::size_t p = 0;
  while (p < parts.size() && n >= parts[p].shape.vectors()) n -= parts[p++].shape.vectors();
  for (Source& s : sources) {
    while (p < parts.size() && n == parts[p].shape.vectors()) ++p, n = 0;
    if (p == parts.size()) break;
    s = {&parts[p], n++};
  }
  return sources;
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

[[noreturn]] void throw_bad_scale(std::span<const QuantizedView> parts) {
  std::int64_t first = 0;
  for (const QuantizedView& w : parts) {
    for (std::int64_t n = 0; n < w.shape.vectors(); ++n)
      for (std::int64_t b = 0; b < w.shape.blocks(); ++b)
        if (const int scale = w.scales[w.shape.scale_offset(n, b)]; scale > E4M3::kMaxBits)
          throw ValueError(fmt::format(
              "pack_weights: scale of output {}, block {} = 0x{:02X}, must be at most 0x7E (no "
              "NaN, no sign)",
              first + n, b, scale));
    first += w.shape.vectors();
  }
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
  map_pages(data_.get(), bytes());
  global_ = std::make_unique<float[]>(static_cast<std::size_t>(global_count()));
}

void PackedWeights::swap(PackedWeights& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(global_, other.global_);
  std::swap(rows_, other.rows_);
  std::swap(cols_, other.cols_);
  std::swap(scope_, other.scope_);
}

PackedWeights pack_weights(QuantizedView w) { return pack_weights(std::span(&w, 1)); }

PackedWeights pack_weights(std::span<const QuantizedView> parts) {
  require<ShapeError>(!parts.empty(), "pack_weights: no parts, must be at least one");
  std::int64_t rows = 0;
  bool one_global = true;
  for (const QuantizedView& w : parts) {
    require_quantized("pack_weights", "w", w);
    require_cpu("pack_weights", "w", w.device);
    const QuantizedShape& s = w.shape;
    require<ShapeError>(s.block == kBlock, "pack_weights: w has blocks of {}, must be 16", s.block);
    require<ShapeError>(s.depth() == parts[0].shape.depth(),
                        "pack_weights: a part has K = {}, must be {} as the first", s.depth(),
                        parts[0].shape.depth());
    require<ShapeError>(w.global_scale != nullptr, "pack_weights: w.global_scale is null");
    one_global &= s.scope == GlobalScope::tensor &&
                  float_bits(*w.global_scale) == float_bits(*parts[0].global_scale);
    rows += s.vectors();
  }
  PackedWeights packed(rows, parts[0].shape.depth(),
                       one_global ? GlobalScope::tensor : GlobalScope::vector);
  float* global = packed.global_scale();
  if (one_global) *global = *parts[0].global_scale;
  for (const QuantizedView& w : parts)
    for (std::int64_t n = 0; !one_global && n < w.shape.vectors(); ++n) *global++ = w.global_of(n);
  parallel_for(packed.panels(), [&](std::int64_t p) {
    std::uint8_t* panel = packed.data() + p * packed.panel_bytes();
    pack_panel(panel_sources(parts, p * kPanelRows), packed.blocks(), panel);
    if (has_bad_scale(panel, packed.blocks())) throw_bad_scale(parts);
  });
  return packed;
}

PackedWeights pack_weights(MatrixView w, const QuantizeOptions& options) {
  const QuantizedShape shape = quantized_shape("pack_weights", w, options);
  const Backend& backend = find_backend(options.backend);
  // Errors that name an element, blocks that run down the columns and Hessians need the whole
  // matrix.
  if (backend.pack == nullptr || shape.axis != BlockAxis::rows || shape.block != kBlock ||
      options.check_finite || is_given(options.hessian) || w.device.type != DeviceType::cpu)
    return pack_weights(quantize(w, options).view());

  PackedWeights packed(shape.rows, shape.cols, shape.scope);
  std::vector<float> divisors(static_cast<std::size_t>(shape.global_count()));
  const auto set_global = [&](std::int64_t i, const GlobalScale& g) {
    divisors[static_cast<std::size_t>(i)] = g.divisor;
    packed.global_scale()[i] = g.multiplier;
  };
  for (std::size_t i = 0; i < options.global.size(); ++i)
    set_global(static_cast<std::int64_t>(i), options.global[i]);
  const bool measured = options.global.empty();
  const bool each_row = shape.scope == GlobalScope::vector;
  if (measured && !each_row)
    set_global(0, GlobalScale::from_amax(matrix_amax(backend, w).amax, options.quantizer));
  std::vector<float> weights;
  if (!options.weights.empty()) weights = normalized_weights(options.weights);
  const EncodeJob job{.x = w,
                      .out = {shape, nullptr, nullptr, nullptr},
                      .quantizer = options.quantizer,
                      .divisors = divisors.data(),
                      .weights = weights.empty() ? nullptr : weights.data(),
                      .panels = packed.data()};
  parallel_for(packed.panels(), [&](std::int64_t p) {
    const std::int64_t n0 = p * kPanelRows, n1 = std::min(shape.rows, n0 + kPanelRows);
    for (std::int64_t n = n0; measured && each_row && n < n1; ++n)
      set_global(n, GlobalScale::from_amax(backend.amax(w, n, n + 1).amax, options.quantizer));
    if (shape.blocks() > 0) backend.pack(job, {n0, n1, 0, shape.blocks()});
  });
  return packed;
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
