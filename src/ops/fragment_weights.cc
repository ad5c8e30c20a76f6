#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "backends/cuda/gemm/fragment_tile.h"
#include "backends/device_backend.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/tensor_core_gemm.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

using cuda::TileValues;
static_assert(FragmentWeights::kTileRows == cuda::kTileRows &&
              FragmentWeights::kTileCols == cuda::kTileCols &&
              FragmentWeights::kTileBytes == cuda::kTileBytes);

constexpr std::int64_t kTileBlocks = cuda::kTileCols / kBlock, kCodeBytes = kBlock / 2;
constexpr std::int64_t kMostTiles = (std::int64_t{1} << 31) - 1;

void copy_bytes(Device device, void* to, Device from_device, const void* from, std::int64_t bytes,
                Stream stream = {}) {
  const MatrixView in(from, DType::bf16, 1, bytes / 2, kDense, from_device);
  copy(in, MatrixSpan(to, DType::bf16, 1, bytes / 2, kDense, device), stream);
}

/// The row of W that is packed as row n.
std::int64_t row_of(const FragmentWeights& packed, std::int64_t n) {
  if (!packed.gate_up()) return n;
  return cuda::gate_up_row(n, packed.rows() / 2, packed.gate_up()->interleave);
}

/// A tile of matrix `group`; what lies outside it is zero.
void load_tile(const FragmentPackJob& job, std::int64_t row0, std::int64_t block0,
               TileValues& values) {
  std::memset(&values, 0, sizeof values);
  const QuantizedShape& s = job.w.shape;
  const std::int64_t rows = std::min<std::int64_t>(cuda::kTileRows, job.packed->rows() - row0);
  const std::int64_t blocks = std::min(kTileBlocks, s.blocks() - block0);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t n = job.first_row + row_of(*job.packed, row0 + r);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t block = block0 + b;
      std::uint8_t* const codes = &values.codes[r][b * kCodeBytes];
      if (s.axis == BlockAxis::rows) {
        std::memcpy(codes, job.w.codes + (n * s.blocks() + block) * kCodeBytes, kCodeBytes);
      } else {
        for (std::int64_t i = 0; i < kCodeBytes; ++i)
          codes[i] = job.w.codes[(block * kCodeBytes + i) * s.cols + n];
      }
      const std::uint8_t scale = job.w.scales[s.scale_offset(n, block)];
      require<ValueError>(scale <= E4M3::kMaxBits,
                          "pack_fragments: scale of row {}, block {} = 0x{:02X}, must be at most "
                          "0x7E (no NaN, no sign)",
                          n, block, scale);
      values.scales[r][b] = scale;
    }
  }
}

void pack_on_cpu(const FragmentPackJob& job) {
  FragmentWeights& to = *job.packed;
  parallel_for(to.row_tiles(), [&](std::int64_t row_tile) {
    TileValues values;
    for (std::int64_t c = 0; c < to.col_tiles(); ++c) {
      load_tile(job, row_tile * cuda::kTileRows, c * kTileBlocks, values);
      std::uint8_t* const tile = to.data() + job.group * to.group_bytes() +
                                 (row_tile * to.col_tiles() + c) * std::int64_t{cuda::kTileBytes};
      for (int warp = 0; warp < cuda::kTileWarps; ++warp)
        for (int lane = 0; lane < cuda::kTileLanes; ++lane) {
          std::uint32_t words[4];
          cuda::pack_lane(values, warp, lane, words);
          std::memcpy(tile + cuda::words_at(warp, lane), words, sizeof words);
        }
      for (int r = 0; r < cuda::kTileRows; ++r)
        for (int b = 0; b < kTileBlocks; ++b)
          tile[cuda::scale_at(r, b)] = cuda::widen_scale(values.scales[r][b]);
    }
  });
  const bool per_row = to.scope() == GlobalScope::vector;
  std::copy_n(job.w.global_scale + (per_row ? job.first_row : 0), to.group_globals(),
              to.global_scale() + job.group * to.group_globals());
}

void unpack_on_cpu(const FragmentUnpackJob& job) {
  const FragmentWeights& from = *job.packed;
  const std::int64_t blocks = job.w.shape.blocks();
  parallel_for(from.row_tiles(), [&](std::int64_t row_tile) {
    TileValues values;
    for (std::int64_t c = 0; c < from.col_tiles(); ++c) {
      const std::uint8_t* const tile =
          from.data() + job.group * from.group_bytes() +
          (row_tile * from.col_tiles() + c) * std::int64_t{cuda::kTileBytes};
      for (int warp = 0; warp < cuda::kTileWarps; ++warp)
        for (int lane = 0; lane < cuda::kTileLanes; ++lane) {
          std::uint32_t words[4];
          std::memcpy(words, tile + cuda::words_at(warp, lane), sizeof words);
          cuda::unpack_lane(words, warp, lane, values);
        }
      const std::int64_t row0 = row_tile * cuda::kTileRows, block0 = c * kTileBlocks;
      for (int r = 0; r < std::min<std::int64_t>(cuda::kTileRows, from.rows() - row0); ++r)
        for (int b = 0; b < std::min(kTileBlocks, blocks - block0); ++b) {
          const std::int64_t at = row_of(from, row0 + r) * blocks + block0 + b;
          std::memcpy(job.w.codes + at * kCodeBytes, &values.codes[r][b * kCodeBytes], kCodeBytes);
          job.w.scales[at] = cuda::narrow_scale(tile[cuda::scale_at(r, b)]);
        }
    }
  });
  std::copy_n(from.global_scale() + job.group * from.group_globals(), from.group_globals(),
              job.w.global_scale);
}

void require_weights(const QuantizedView& w, std::int64_t groups) {
  constexpr const char* kOp = "pack_fragments";
  require_quantized(kOp, "w", w);
  const QuantizedShape& s = w.shape;
  require<ShapeError>(s.block == kBlock, "{}: w has blocks of {}, must be 16", kOp, s.block);
  require<ShapeError>(groups >= 1 && s.vectors() % groups == 0,
                      "{}: groups = {}, must be at least 1 and divide the {} rows of w", kOp,
                      groups, s.vectors());
  require<ShapeError>(w.global_scale != nullptr, "{}: w.global_scale is null", kOp);
}

void pack(const FragmentPackJob& job) {
  const Device device = job.packed->device();
  if (device.type == DeviceType::cpu) return pack_on_cpu(job);
  device_backend(device).pack_fragments(job);
}

/// The device's report of a bad scale, or nothing to report to on the CPU, which throws at once.
class BadScale {
 public:
  explicit BadScale(Device device) : flag_(device.type == DeviceType::cuda ? 8 : 0, device) {}
  std::uint64_t* get() const { return static_cast<std::uint64_t*>(flag_.data()); }
  void check(std::int64_t blocks, Stream stream) const {
    if (get() == nullptr) return;
    std::uint64_t found = 0;
    copy_bytes({}, &found, flag_.device(), get(), sizeof found, stream);
    synchronize(flag_.device(), stream);
    const std::uint64_t at = ~found;
    require<ValueError>(found == 0,
                        "pack_fragments: scale of row {}, block {} is NaN or has its sign set, "
                        "must be at most 0x7E",
                        at / static_cast<std::uint64_t>(blocks),
                        at % static_cast<std::uint64_t>(blocks));
  }

 private:
  Buffer flag_;
};

}  // namespace

FragmentWeights::FragmentWeights(Shape, std::int64_t groups, std::int64_t rows, std::int64_t cols,
                                 GlobalScope scope, std::optional<GateUp> gate_up)
    : groups_(groups), rows_(rows), cols_(cols), scope_(scope), gate_up_(gate_up) {
  require<ShapeError>(
      groups >= 1 && rows >= 1 && cols >= kBlock && cols % kBlock == 0,
      "FragmentWeights: [G, N, K] = [{}, {}, {}], G and N must be at least 1 and K a positive "
      "multiple of 16",
      groups, rows, cols);
  require<ShapeError>(
      rows <= kMostTiles && cols <= kMostTiles && groups <= kMostTiles &&
          col_tiles() <= kMostTiles / row_tiles() &&
          groups <= kMaxMatrixElements / (row_tiles() * col_tiles() * 4096),
      "FragmentWeights: [G, N, K] = [{}, {}, {}], at most 2^48 elements in tiles of "
      "64x64, and 2^31 - 1 tiles a matrix",
      groups, rows, cols);
  if (gate_up) {
    const int interleave = gate_up->interleave;
    require<ShapeError>(rows % 32 == 0,
                        "FragmentWeights: N = 2·I = {}, I must be a multiple of 16 for SwiGLU",
                        rows);
    require<ValueError>(
        interleave >= 0 &&
            (interleave == 0 || std::has_single_bit(static_cast<unsigned>(interleave))),
        "FragmentWeights: interleave = {}, must be 0 or a power of two", interleave);
    require<ShapeError>(interleave == 0 || rows / 2 % interleave == 0,
                        "FragmentWeights: interleave = {}, must divide I = {}", interleave,
                        rows / 2);
  }
}

FragmentWeights::FragmentWeights(std::int64_t groups, std::int64_t rows, std::int64_t cols,
                                 GlobalScope scope, Device device, std::optional<GateUp> gate_up)
    : FragmentWeights(Shape{}, groups, rows, cols, scope, gate_up) {
  data_ = Buffer(bytes(), device);
  global_ = Buffer(groups * group_globals() * static_cast<std::int64_t>(sizeof(float)), device);
}

FragmentWeights::FragmentWeights(std::int64_t groups, std::int64_t rows, std::int64_t cols,
                                 GlobalScope scope, Device device, std::span<std::uint8_t> tiles,
                                 std::span<float> globals, std::optional<GateUp> gate_up)
    : FragmentWeights(Shape{}, groups, rows, cols, scope, gate_up) {
  constexpr const char* kOp = "FragmentWeights";
  require<ShapeError>(std::ssize(tiles) == bytes(), "{}: tiles has {} bytes, must have {}", kOp,
                      tiles.size(), bytes());
  require<ShapeError>(std::ssize(globals) == groups * group_globals(),
                      "{}: globals has {} elements, must have {}", kOp, globals.size(),
                      groups * group_globals());
  require_memory(kOp, "tiles", tiles.data(), bytes(), 16);
  require_memory(kOp, "globals", globals.data(), std::ssize(globals), sizeof(float));
  data_ = Buffer::borrow(tiles.data(), device);
  global_ = Buffer::borrow(globals.data(), device);
}

void FragmentWeights::swap(FragmentWeights& other) noexcept {
  data_.swap(other.data_);
  global_.swap(other.global_);
  std::swap(groups_, other.groups_);
  std::swap(rows_, other.rows_);
  std::swap(cols_, other.cols_);
  std::swap(scope_, other.scope_);
  std::swap(gate_up_, other.gate_up_);
}

FragmentWeights to_device(const FragmentWeights& w, Device device) {
  if (w.groups() == 0) return {};
  FragmentWeights to(w.groups(), w.rows(), w.cols(), w.scope(), device, w.gate_up());
  copy_bytes(device, to.data(), w.device(), w.data(), w.bytes());
  copy_bytes(device, to.global_scale(), w.device(), w.global_scale(),
             w.groups() * w.group_globals() * 4);
  for (const Device side : {device, w.device()}) synchronize(side);
  return to;
}

void pack_fragments_into(QuantizedView w, FragmentWeights& packed, std::int64_t group,
                         Stream stream) {
  constexpr const char* kOp = "pack_fragments_into";
  require_weights(w, 1);
  require_on(kOp, "packed", packed.device(), w.device);
  require<ShapeError>(group >= 0 && group < packed.groups(),
                      "{}: group = {}, must be one of the {} of packed", kOp, group,
                      packed.groups());
  const QuantizedShape& s = w.shape;
  require<ShapeError>(
      s.vectors() == packed.rows() && s.depth() == packed.cols() && s.scope == packed.scope(),
      "{}: w is [N, K] = [{}, {}], packed has [{}, {}]; the scope of the global "
      "scales must agree too",
      kOp, s.vectors(), s.depth(), packed.rows(), packed.cols());
  pack({.w = w, .packed = &packed, .group = group, .stream = stream});
}

namespace {

FragmentWeights pack_groups(const QuantizedView& w, std::int64_t groups, Stream stream,
                            std::optional<GateUp> gate_up) {
  require_weights(w, groups);
  const QuantizedShape& s = w.shape;
  FragmentWeights packed(groups, s.vectors() / groups, s.depth(), s.scope, w.device, gate_up);
  const BadScale bad(w.device);
  for (std::int64_t g = 0; g < groups; ++g)
    pack({.w = w,
          .first_row = g * packed.rows(),
          .packed = &packed,
          .group = g,
          .bad_scale = bad.get(),
          .stream = stream});
  bad.check(s.blocks(), stream);
  return packed;
}

}  // namespace

FragmentWeights pack_fragments(QuantizedView w, std::int64_t groups, Stream stream) {
  return pack_groups(w, groups, stream, std::nullopt);
}
FragmentWeights pack_gate_up_fragments(QuantizedView w, GateUp order, std::int64_t groups,
                                       Stream stream) {
  return pack_groups(w, groups, stream, order);
}

FragmentWeights pack_fragments(std::span<const QuantizedView> w, Stream stream) {
  constexpr const char* kOp = "pack_fragments";
  require<ShapeError>(!w.empty(), "{}: no matrices, must be at least one", kOp);
  for (std::size_t g = 0; g < w.size(); ++g) {
    require_weights(w[g], 1);
    require_on(kOp, "w", w[g].device, w[0].device);
    const QuantizedShape &a = w[g].shape, &b = w[0].shape;
    require<ShapeError>(
        a.vectors() == b.vectors() && a.depth() == b.depth() && a.scope == b.scope,
        "{}: w[{}] is [N, K] = [{}, {}], must be [{}, {}], with the same scope, as w[0]", kOp, g,
        a.vectors(), a.depth(), b.vectors(), b.depth());
  }
  const QuantizedShape& s = w[0].shape;
  FragmentWeights packed(static_cast<std::int64_t>(w.size()), s.vectors(), s.depth(), s.scope,
                         w[0].device);
  const BadScale bad(w[0].device);
  for (std::size_t g = 0; g < w.size(); ++g)
    pack({.w = w[g],
          .packed = &packed,
          .group = static_cast<std::int64_t>(g),
          .bad_scale = bad.get(),
          .stream = stream});
  bad.check(s.blocks(), stream);
  return packed;
}

QuantizedMatrix unpack_fragments(const FragmentWeights& w, std::int64_t group, Stream stream) {
  require<ShapeError>(group >= 0 && group < w.groups(),
                      "unpack_fragments: group = {}, must be one of {}", group, w.groups());
  QuantizedMatrix q({.rows = w.rows(), .cols = w.cols(), .scope = w.scope()}, w.device());
  const FragmentUnpackJob job{.packed = &w, .group = group, .w = q.span(), .stream = stream};
  if (w.device().type == DeviceType::cpu)
    unpack_on_cpu(job);
  else
    device_backend(w.device()).unpack_fragments(job);
  return q;
}

}  // namespace nvfp4
