#pragma once

#include "checkpoint/work/nvfp4_work.h"

namespace nvfp4::checkpoint {

/// NVFP4 from values of a dtype, from FP8, or from MXFP4 in a group with other weights.
class QuantizeWork final : public Nvfp4Work {
 public:
  explicit QuantizeWork(const Nvfp4Output& output) : Nvfp4Work(output) {}

  std::string_view action() const override { return "quantized"; }
  bool is_measured() const override { return true; }
  /// Copied weights keep their global scale if it is large enough for the others of the group.
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  double weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                        std::span<const double> squares) const override;
};

}  // namespace nvfp4::checkpoint
