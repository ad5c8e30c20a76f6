#include <cstring>

#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/quantize.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kMostScales = kMaxMatrixElements / kBlock;

void relayout_one(const std::uint8_t* in, ScaleLayout in_layout, std::uint8_t* out,
                  ScaleLayout out_layout, std::int64_t rows, std::int64_t blocks) {
  visit_layout(in_layout, [&](auto from) {
    visit_layout(out_layout, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      constexpr std::int64_t kRows = 128;
      parallel_for(ceil_div(rows, kRows), [&](std::int64_t part) {
        const std::int64_t end = std::min(rows, (part + 1) * kRows);
        for (std::int64_t r = part * kRows; r < end; ++r)
          for (std::int64_t b = 0; b < blocks; ++b)
            out[To::offset(r, b, rows, blocks)] = in[From::offset(r, b, rows, blocks)];
      });
    });
  });
}

void require_size(const char* argument, std::size_t size, std::int64_t expected,
                  ScaleLayout layout) {
  require<ShapeError>(static_cast<std::int64_t>(size) == expected,
                      "relayout_scales: {} has {} bytes, layout {} needs {}", argument, size,
                      layout_name(layout), expected);
}

}  // namespace

void relayout_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                     std::span<std::uint8_t> out, ScaleLayout out_layout, std::int64_t rows,
                     std::int64_t blocks, Device device, Stream stream) {
  if (device.type == DeviceType::cuda) {
    require<ShapeError>(rows >= 0 && blocks >= 0 && (rows == 0 || blocks <= kMostScales / rows),
                        "relayout_scales: {} rows of {} blocks", rows, blocks);
    require_size("in", in.size(), scale_bytes(in_layout, rows, blocks), in_layout);
    require_size("out", out.size(), scale_bytes(out_layout, rows, blocks), out_layout);
    return device_backend(device).relayout(in.data(), in_layout, out.data(), out_layout, rows,
                                           blocks, device, stream);
  }
  const std::int64_t ends[] = {rows};
  relayout_grouped_scales(in, in_layout, out, out_layout, ends, blocks);
}

void relayout_grouped_scales(std::span<const std::uint8_t> in, ScaleLayout in_layout,
                             std::span<std::uint8_t> out, ScaleLayout out_layout,
                             std::span<const std::int64_t> row_ends, std::int64_t blocks) {
  require<ShapeError>(blocks >= 0, "relayout_scales: blocks = {}, must not be negative", blocks);
  std::int64_t previous = 0;
  for (std::size_t g = 0; g < row_ends.size(); ++g) {
    require<ShapeError>(row_ends[g] >= previous,
                        "relayout_scales: row_ends[{}] = {}, must not be below {}", g, row_ends[g],
                        previous);
    previous = row_ends[g];
  }
  require<ShapeError>(blocks == 0 || (previous <= kMostScales && blocks <= kMostScales &&
                                      (previous == 0 || blocks <= kMostScales / previous)),
                      "relayout_scales: {} rows of {} blocks, more than 2^44 scales", previous,
                      blocks);
  const auto groups = static_cast<std::int64_t>(row_ends.size());
  require_size("in", in.size(), grouped_scale_base(in_layout, row_ends.data(), groups, blocks),
               in_layout);
  require_size("out", out.size(), grouped_scale_base(out_layout, row_ends.data(), groups, blocks),
               out_layout);
  if (!out.empty()) std::memset(out.data(), 0, out.size());

  const std::uint8_t* from = in.data();
  std::uint8_t* to = out.data();
  previous = 0;
  for (const std::int64_t end : row_ends) {
    const std::int64_t rows = end - previous;
    relayout_one(from, in_layout, to, out_layout, rows, blocks);
    from += scale_bytes(in_layout, rows, blocks);
    to += scale_bytes(out_layout, rows, blocks);
    previous = end;
  }
}

}  // namespace nvfp4
