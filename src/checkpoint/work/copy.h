#pragma once

#include "checkpoint/formats/declared.h"
#include "checkpoint/work/nvfp4_work.h"

namespace nvfp4::checkpoint {

/// Returns the input scale of a slice of an NVFP4 weight. `declared` is the input's declaration, or
/// null. Throws ValueError for a weight that has none, or one that is not finite and positive.
/// Throws UnsupportedError if it is that of FP8.
GlobalScale copied_input(const LogicalTensor& t, const WeightSlice& slice,
                         const Declared* declared);

/// NVFP4 from NVFP4: codes and scales are copied.
class CopyWork final : public Nvfp4Work {
 public:
  /// `encodes`: other weights of the group are encoded, and all get one global scale. The block
  /// scales compensate; they lose their sign and are rounded. Throws as global_of() does.
  CopyWork(const Nvfp4Output& output, const LogicalTensor& t, const WeightSlice& slice,
           bool encodes);

  /// Returns the global scale of a slice of an NVFP4 weight, or that of its repair. Throws
  /// ValueError for one that is not finite and positive. Throws UnsupportedError if each row has
  /// one.
  static GlobalScale global_of(const LogicalTensor& t, const WeightSlice& slice);

  std::string_view action() const override { return "moved"; }
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;
  /// Returns the global scale, unless it depends on the group.
  std::optional<GlobalScale> own_global() const {
    return encodes_ ? std::nullopt : std::optional(global_);
  }

 protected:
  std::int64_t chunk_elements(const WeightSlice& slice) const override;

 private:
  GlobalScale global_;
  float stored_;  ///< multiplier of the input
  bool encodes_;
  bool is_changed_;  ///< the repair changes block scales
};

}  // namespace nvfp4::checkpoint
