#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gemm_backend.h"

namespace nvfp4 {

/// Throws ShapeError unless `w` can be a part of packed weights.
void require_part(const char* op, const QuantizedView& w);

/// Packs one group after the other on the device of the weights, wherever their parts lie: from the
/// CPU codes and scales go to a GPU as they are, and nothing waits for it before finish().
class WeightPacker {
 public:
  /// The scope of the shape is that of all groups: tensor if each has one global scale.
  WeightPacker(const char* op, const PackedShape& shape, const PackOptions& options);

  /// The parts, one after the other. `name`: for messages.
  void add(std::int64_t group, std::span<const PackPart> parts, const std::string& name = {});
  /// Dense weights, quantized on the way.
  void add(std::int64_t group, const MatrixView& w, const QuantizeOptions& quantize,
           const std::string& name = {});

  /// Waits once, where scales are checked on a GPU or `parts` came from the CPU. Throws ValueError
  /// for a scale that is NaN or has its sign set.
  PackedWeights finish();

 private:
  bool to_gpu() const { return packed_->device().type == DeviceType::cuda; }
  void add_on_cpu(std::int64_t group, std::span<const PackPart> parts);
  /// One matrix on the GPU of all the parts.
  PackPart on_gpu(std::span<const PackPart> parts);
  PackPart uploaded_whole(const PackPart& part);
  void stage_globals(std::span<const PackPart> parts);
  QuantizedSpan stage(const QuantizedShape& shape);
  void copy_bytes(void* to, Device from_device, const void* from, std::int64_t bytes);
  void check_scales();

  const char* op_;
  PackOptions options_;
  std::shared_ptr<PackedWeights::Impl> packed_;
  Buffer bad_scales_;  ///< on a GPU: a word for each group
  std::vector<std::string> names_;
  bool from_cpu_ = false;
  QuantizedMatrix stage_;                ///< on the GPU: of one group after the other
  const std::uint8_t* whole_ = nullptr;  ///< the codes that stage_ has, if it has all groups'
};

}  // namespace nvfp4
