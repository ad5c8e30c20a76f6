#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gemm_backend.h"

namespace nvfp4 {

/// Throws ShapeError unless `w` is valid as a part of packed weights.
void require_part(const char* op, const QuantizedView& w);

/// A packer of weights, group by group, on the device of the packed weights. The parts may be on
/// any device. Codes and scales from the CPU are uploaded unchanged, and nothing waits for a GPU
/// before finish().
class WeightPacker {
 public:
  /// Allocates the weights. The scope of the shape is `tensor` if each group has one global scale.
  WeightPacker(const char* op, const PackedShape& shape, const PackOptions& options);

  /// Packs the parts of a group, one after the other. `name` is for error messages.
  void add(std::int64_t group, std::span<const PackPart> parts, const std::string& name = {});
  /// Quantizes and packs dense weights.
  void add(std::int64_t group, const MatrixView& w, const QuantizeOptions& quantize,
           const std::string& name = {});

  /// Returns the weights. Waits once, if scales are checked on a GPU or `parts` came from the CPU.
  /// Throws ValueError for a scale that is NaN or has its sign set.
  PackedWeights finish();

 private:
  bool to_gpu() const { return packed_->device().type == DeviceType::cuda; }
  void add_on_cpu(std::int64_t group, std::span<const PackPart> parts);
  /// Returns all parts as one matrix on the GPU.
  PackPart on_gpu(std::span<const PackPart> parts);
  PackPart uploaded_whole(const PackPart& part);
  void stage_globals(std::span<const PackPart> parts);
  QuantizedSpan stage(const QuantizedShape& shape);
  void copy_bytes(void* to, Device from_device, const void* from, std::int64_t bytes);
  void check_scales();

  const char* op_;
  PackOptions options_;
  std::shared_ptr<PackedWeights::Impl> packed_;
  Buffer bad_scales_;  ///< one word for each group, on the GPU
  std::vector<std::string> names_;
  bool from_cpu_ = false;
  QuantizedMatrix stage_;                ///< memory on the GPU for one group at a time
  const std::uint8_t* whole_ = nullptr;  ///< codes in stage_, if it holds those of all groups
};

}  // namespace nvfp4
