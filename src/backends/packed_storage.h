#pragma once

#include <cstdint>
#include <memory>

#include "backends/gemm_kernels.h"
#include "nvfp4/gemm.h"

/// Packed weights as kernels read them: G matrices one after the other, then the global scales.
namespace nvfp4 {

/// The order of the bytes (docs/layouts.md).
enum class WeightLayout : std::uint8_t {
  /// Layout of the CPU. A panel has 16 rows; the last one is padded with zeros. It has groups of 4
  /// blocks; the last one may have fewer. A group has its scales, E4M3 [block][row], then its codes
  /// as [block][half][row] words of 32 bits. A word has the 8 elements of its half block, element 0
  /// lowest.
  interleaved_16x4,
  /// Layout of GPUs. Tiles have 64 rows and 64 columns, are padded with zeros, and have the order
  /// of tensor core registers (backends/cuda/gemm).
  fragments_64x64,
};
constexpr WeightLayout layout_of(Device device) {
  return device.type == DeviceType::cpu ? WeightLayout::interleaved_16x4
                                        : WeightLayout::fragments_64x64;
}

class PackedStorage {
 public:
  static constexpr std::int64_t kTileRows = 64, kTileCols = 64;
  static constexpr std::int64_t kTileBytes = kTileRows * kTileCols / 16 * 9;

  PackedStorage() = default;
  /// Allocates memory: uninitialized on the CPU, zeros on a GPU. Throws ShapeError, ValueError,
  /// DeviceError …
  PackedStorage(const char* op, const PackedShape& shape);
  /// Uses memory of the caller.
  PackedStorage(const char* op, const PackedShape& shape, std::span<std::byte> memory);

  const PackedShape& shape() const { return shape_; }
  std::int64_t groups() const { return shape_.groups; }  ///< G
  std::int64_t rows() const { return shape_.rows; }      ///< N
  std::int64_t cols() const { return shape_.cols; }      ///< K
  std::int64_t blocks() const { return shape_.cols / kBlock; }
  GlobalScope scope() const { return shape_.scope; }
  const std::optional<GateUp>& gate_up() const { return shape_.gate_up; }
  Device device() const { return shape_.device; }
  WeightLayout layout() const { return layout_of(shape_.device); }

  // Accessors for interleaved_16x4.
  PanelMatrix panels_of(std::int64_t group) const {
    return {data_ + group * group_bytes(), rows(), blocks()};
  }
  // Accessors for fragments_64x64.
  std::int64_t row_tiles() const { return ceil_div(rows(), kTileRows); }
  std::int64_t col_tiles() const { return ceil_div(cols(), kTileCols); }

  std::int64_t group_bytes() const { return bytes() / groups(); }
  std::int64_t bytes() const { return shape_.bytes(); }  ///< bytes of codes and scales
  std::uint8_t* data() const { return data_; }           ///< on the device
  std::int64_t group_globals() const { return scope() == GlobalScope::tensor ? 1 : rows(); }
  /// Returns groups() · group_globals() values, on the device.
  float* global_scale() const { return reinterpret_cast<float*>(data_ + bytes()); }

 private:
  PackedShape shape_{.groups = 0};
  std::shared_ptr<void> memory_;
  std::uint8_t* data_ = nullptr;
};

struct PackedWeights::Impl : PackedStorage {
  using PackedStorage::PackedStorage;
};

}  // namespace nvfp4
