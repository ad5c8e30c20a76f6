// Converts codes and scales to interleaved_16x4, and back.
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/host/host.h"
#include "core/parallel_for.h"
#include "core/require.h"

namespace nvfp4::host {
namespace {

constexpr std::int64_t kCodeBytes = kBlock / 2;

/// An output of one of the weights to pack.
struct Source {
  const QuantizedView* w = nullptr;  ///< null past the last output
  std::int64_t n = 0;
};
using PanelSources = std::array<Source, kPanelRows>;

/// Loads the 8 code bytes of a block. With blocks along columns they are a row apart.
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

/// Transposes four words of four rows to rows that are 16 words apart.
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

/// Packs four blocks of 16 rows of a row-major matrix with linear scales, from row n0 on.
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

/// Packs blocks [b, b + n) of 16 outputs: a group, or the rest of one. Missing outputs are zero.
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

/// Returns outputs [n0, n0 + 16) of the concatenated parts.
PanelSources panel_sources(std::span<const PackPart> parts, std::int64_t n0) {
  PanelSources sources;
  std::int64_t n = n0;
  std::size_t p = 0;
  while (p < parts.size() && n >= parts[p].count) n -= parts[p++].count;
  for (Source& s : sources) {
    while (p < parts.size() && n == parts[p].count) ++p, n = 0;
    if (p == parts.size()) break;
    s = {&parts[p].w, parts[p].first + n++};
  }
  return sources;
}

/// Reports whether a scale is NaN or has its sign set.
bool has_bad_scale(const std::uint8_t* panel, std::int64_t blocks) {
  std::uint8_t bad = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::uint8_t* scales = panel + panel_block(b, blocks).scales;
    for (std::int64_t r = 0; r < kPanelRows; ++r) bad |= scales[r] > E4M3::kMaxBits;
  }
  return bad != 0;
}

[[noreturn]] void throw_bad_scale(std::span<const PackPart> parts) {
  std::int64_t first = 0;
  for (const PackPart& part : parts) {
    const QuantizedView& w = part.w;
    for (std::int64_t n = 0; n < part.count; ++n)
      for (std::int64_t b = 0; b < w.shape.blocks(); ++b)
        if (const int scale = w.scales[w.shape.scale_offset(part.first + n, b)];
            scale > E4M3::kMaxBits)
          throw ValueError(fmt::format(
              "pack_weights: scale of output {}, block {} = 0x{:02X}, must be at most 0x7E (no "
              "NaN, no sign)",
              first + n, b, scale));
    first += part.count;
  }
  throw ValueError("pack_weights: w changed while it was read");
}

}  // namespace

void pack(const PackJob& job) {
  PackedStorage& packed = *job.packed;
  const PanelMatrix to = packed.panels_of(job.group);
  std::uint8_t* const data = packed.data() + job.group * packed.group_bytes();
  parallel_for(to.panels(), [&](std::int64_t p) {
    std::uint8_t* panel = data + p * to.panel_bytes();
    pack_panel(panel_sources(job.parts, p * kPanelRows), to.blocks, panel);
    if (has_bad_scale(panel, to.blocks)) throw_bad_scale(job.parts);
  });
}

void unpack(const UnpackJob& job) {
  const PanelMatrix from = job.packed->panels_of(job.group);
  const QuantizedSpan& q = job.w;
  std::memcpy(q.global_scale, job.packed->global_scale() + job.group * job.packed->group_globals(),
              static_cast<std::size_t>(job.packed->group_globals()) * sizeof(float));
  parallel_for(from.panels(), [&](std::int64_t p) {
    const std::uint8_t* panel = from.data + p * from.panel_bytes();
    for (std::int64_t n = p * kPanelRows; n < std::min(from.rows, (p + 1) * kPanelRows); ++n) {
      const std::int64_t r = n % kPanelRows;
      for (std::int64_t b = 0; b < from.blocks; ++b) {
        const PanelBlock at = panel_block(b, from.blocks);
        std::uint8_t* codes = q.codes + (n * from.blocks + b) * kCodeBytes;
        std::memcpy(codes, panel + at.codes + r * 4, 4);
        std::memcpy(codes + 4, panel + at.codes + (kPanelRows + r) * 4, 4);
        q.scales[n * from.blocks + b] = panel[at.scales + r];
      }
    }
  });
}

}  // namespace nvfp4::host
