#pragma once

#include "checkpoint/work/matrix_work.h"

namespace nvfp4::checkpoint {

/// The facts about a matrix in NVFP4 that do not depend on how its codes are made.
struct Nvfp4Output {
  /// Number of rows of the stack [K, rows] that contains this matrix; 0 for a weight of its own.
  std::int64_t stack_rows = 0;
  std::int64_t stack_begin = 0;   ///< the first element of the matrix in the stack
  GlobalScale input = {};         ///< the input scale, where the scheme has one
  bool input_is_given = false;    ///< the input scale is the one of an NVFP4 weight
  std::int32_t row_multiple = 1;  ///< number of rows that must be written together
};

/// Work whose result is NVFP4.
class Nvfp4Work : public MatrixWork {
 public:
  const Nvfp4Output& output() const { return output_; }

  void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
             std::vector<std::byte>& room) const override;
  void write_scales(const MatrixOutput& to, const GlobalScale& global) const override;

 protected:
  explicit Nvfp4Work(const Nvfp4Output& output)
      : MatrixWork(output.row_multiple), output_(output) {}

  std::int64_t chunk_elements(const WeightSlice& slice) const override;

 private:
  Nvfp4Output output_;
};

}  // namespace nvfp4::checkpoint
