#pragma once

#include "checkpoint/work/matrix_work.h"

namespace nvfp4::checkpoint {

/// The place of a dequantized matrix in its tensor.
struct PlainOutput {
  safetensors::DType dtype = safetensors::DType::bf16;
  std::int64_t begin = 0;  ///< the first element in the tensor
  bool transposed = false;
  bool pairs = false;        ///< the columns of a second matrix stand beside those of the first
  bool interleaved = false;  ///< the columns of both alternate
};

/// Values of a dtype, from any form.
class DequantizeWork final : public MatrixWork {
 public:
  explicit DequantizeWork(const PlainOutput& output)
      : MatrixWork(output.transposed ? 32 : 1), output_(output) {}

  const PlainOutput& output() const { return output_; }
  std::string_view action() const override { return "dequantized"; }
  EncodedChunk encode(const MatrixRows& rows, const RowsMethod& method,
                      Buffers& buffers) const override;
  void write(const MatrixOutput& to, const MatrixRows& rows, EncodedChunk& chunk,
             std::vector<std::byte>& room) const override;

 protected:
  std::int64_t chunk_elements(const WeightSlice& slice) const override {
    return MatrixWork::chunk_elements(slice) / (output_.pairs ? 2 : 1);
  }

 private:
  PlainOutput output_;
};

}  // namespace nvfp4::checkpoint
