#include "backends/packed_storage.h"

#include <bit>
#include <new>

#include "core/parallel_for.h"
#include "core/require.h"
#include "platform/memory.h"

namespace nvfp4 {
namespace {

constexpr std::int64_t kLargePage = 2 << 20;
constexpr std::int64_t kMostTiles = (std::int64_t{1} << 31) - 1;
constexpr std::uintptr_t kAlignment = 16;

/// Allocates memory with large pages, which save most of the address translation when weights are
/// read.
std::shared_ptr<void> allocate_on_cpu(std::int64_t bytes) {
  const std::int64_t align = bytes >= 2 * kLargePage ? kLargePage : 64;
  const auto size = static_cast<std::size_t>(round_up(std::max<std::int64_t>(bytes, 1), align));
  void* p = platform::allocate_aligned(static_cast<std::size_t>(align), size);
  if (p == nullptr) throw std::bad_alloc();
  std::shared_ptr<void> memory(p, platform::free_aligned);
  if (align == kLargePage) platform::prefer_large_pages(p, size);
  // Threads that touch a new page at the same time each clear one, and all but one are discarded.
  // Here every page has one thread.
  if (align == kLargePage)
    parallel_for(ceil_div(bytes, kLargePage),
                 [&](std::int64_t i) { static_cast<std::byte*>(p)[i * kLargePage] = {}; });
  return memory;
}

std::shared_ptr<void> allocate(std::int64_t bytes, Device device) {
  if (device.type == DeviceType::cpu) return allocate_on_cpu(bytes);
  const auto buffer = std::make_shared<Buffer>(bytes, device);
  return {buffer, buffer->data()};
}

void require_gate_up(const char* op, const PackedShape& s) {
  if (!s.gate_up) return;
  const int interleave = s.gate_up->interleave;
  require<ShapeError>(s.rows % 32 == 0, ErrorCode::partial_block,
                      "{}: N = 2·I = {}, I must be a multiple of 16 for SwiGLU", op, s.rows);
  require<ValueError>(interleave >= 0 && (interleave == 0 ||
                                          std::has_single_bit(static_cast<unsigned>(interleave))),
                      "{}: gate_up.interleave = {}, must be 0 or a power of two", op, interleave);
  require<ShapeError>(interleave == 0 || s.rows / 2 % interleave == 0,
                      "{}: gate_up.interleave = {}, must divide I = {}", op, interleave,
                      s.rows / 2);
}

void require_shape(const char* op, const PackedShape& s) {
  const bool cpu = s.device.type == DeviceType::cpu;
  require<ShapeError>(
      s.groups >= 1 && s.rows >= 1 && s.cols >= (cpu ? 0 : kBlock) && s.cols % kBlock == 0,
      ErrorCode::partial_block,
      "{}: [G, N, K] = [{}, {}, {}], G and N must be at least 1 and K a {}multiple of 16", op,
      s.groups, s.rows, s.cols, cpu ? "" : "positive ");
  const std::int64_t row_tiles = ceil_div(s.rows, PackedStorage::kTileRows);
  const std::int64_t col_tiles =
      std::max<std::int64_t>(1, ceil_div(s.cols, PackedStorage::kTileCols));
  require<ShapeError>(s.rows <= kMostTiles && s.cols <= kMostTiles && s.groups <= kMostTiles &&
                          col_tiles <= kMostTiles / row_tiles &&
                          s.groups <= kMaxMatrixElements / (row_tiles * col_tiles * 4096),
                      ErrorCode::partial_block,
                      "{}: [G, N, K] = [{}, {}, {}], at most 2^48 elements in tiles of 64x64, and "
                      "2^31 - 1 tiles a matrix",
                      op, s.groups, s.rows, s.cols);
  require_gate_up(op, s);
}

}  // namespace

std::int64_t PackedShape::bytes() const {
  if (layout_of(device) == WeightLayout::interleaved_16x4)
    return groups * round_up(rows, kPanelRows) * (cols / kBlock) * 9;
  return groups * ceil_div(rows, PackedStorage::kTileRows) *
         ceil_div(cols, PackedStorage::kTileCols) * PackedStorage::kTileBytes;
}

std::int64_t PackedShape::memory_bytes() const {
  const std::int64_t globals = groups * (scope == GlobalScope::tensor ? 1 : rows);
  return bytes() + globals * static_cast<std::int64_t>(sizeof(float));
}

PackedStorage::PackedStorage(const char* op, const PackedShape& shape) {
  require_shape(op, shape);
  memory_ = allocate(shape.memory_bytes(), shape.device);
  data_ = static_cast<std::uint8_t*>(memory_.get());
  shape_ = shape;
}

PackedStorage::PackedStorage(const char* op, const PackedShape& shape,
                             std::span<std::byte> memory) {
  require_shape(op, shape);
  require<ShapeError>(std::ssize(memory) == shape.memory_bytes(),
                      "{}: memory has {} bytes, must have {}", op, memory.size(),
                      shape.memory_bytes());
  require<ShapeError>(
      memory.data() != nullptr && reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment == 0,
      "{}: memory = {}, must be aligned to {} bytes", op, static_cast<const void*>(memory.data()),
      kAlignment);
  data_ = reinterpret_cast<std::uint8_t*>(memory.data());
  shape_ = shape;
}

PackedWeights::PackedWeights(const PackedShape& shape, std::span<std::byte> memory)
    : impl_(std::make_shared<Impl>("PackedWeights", shape, memory)) {}

PackedShape PackedWeights::shape() const {
  return impl_ ? impl_->shape() : PackedShape{.groups = 0};
}
std::int64_t PackedWeights::groups() const { return impl_ ? impl_->groups() : 0; }
std::int64_t PackedWeights::rows() const { return impl_ ? impl_->rows() : 0; }
std::int64_t PackedWeights::cols() const { return impl_ ? impl_->cols() : 0; }
std::int64_t PackedWeights::bytes() const { return impl_ ? impl_->bytes() : 0; }
Device PackedWeights::device() const { return impl_ ? impl_->device() : Device{}; }
std::span<const std::byte> PackedWeights::memory() const {
  if (!impl_) return {};
  return {reinterpret_cast<const std::byte*>(impl_->data()),
          static_cast<std::size_t>(impl_->shape().memory_bytes())};
}

}  // namespace nvfp4
