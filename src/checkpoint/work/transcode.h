#pragma once

#include "checkpoint/work/nvfp4_work.h"

namespace nvfp4::checkpoint {

/// NVFP4 from MXFP4. Values stay, except in blocks whose scale is below the smallest one. Those are
/// rounded with that scale, and counted.
class TranscodeWork final : public Nvfp4Work {
 public:
  explicit TranscodeWork(const Nvfp4Output& output) : Nvfp4Work(output) {}

  std::string_view action() const override { return "converted"; }
  bool is_measured() const override { return true; }
  /// Returns the largest scale of the elements, and whether all scales are numbers.
  AmaxResult measure(const LogicalTensor& tensor, std::int64_t begin, std::int64_t count,
                     const Backend& backend, Buffers& buffers) const override;
  /// The largest scale, `amax`, becomes 256. Each power of two down to 2^-17 of it is an E4M3.
  /// Source: NVIDIA Model-Optimizer, examples/deepseek/deepseek_v4, cast_mxfp4_to_nvfp4.
  GlobalScale global_scale(const GroupFacts& group) const override;
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
};

}  // namespace nvfp4::checkpoint
