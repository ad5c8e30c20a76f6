#pragma once

#include <string>
#include <vector>

#include "checkpoint/encode/chunk.h"
#include "checkpoint/encode/gptq_chunk.h"

namespace nvfp4::checkpoint {

struct EncoderOptions {
  Quantizer quantizer = Quantizer::max;
  const Method* method = nullptr;
  safetensors::DType plain = safetensors::DType::bf16;  ///< of decoded weights
  std::string backend;
  int sweeps = 0;
};

/// What becomes of rows of a unit, on the CPU: every kind of work.
class UnitEncoder {
 public:
  UnitEncoder(const Plan& plan, EncoderOptions options)
      : plan_(plan), options_(std::move(options)) {}

  /// Rows [row, row + rows); `global` is that of the unit's group. `gram`: null where it is
  /// not needed, or not known. The result lies in `buffers`.
  EncodedChunk chunk(const Unit& unit, std::int64_t row, std::int64_t rows,
                     const GlobalScale& global, const GramSlot* gram, Buffers& buffers) const;
  /// How much the errors of each input channel count; empty: all the same.
  std::vector<float> weights(const Unit& unit) const;
  /// With those of the group, where others of it are encoded anew.
  MovedScales moved_scales(const Unit& unit, const GlobalScale& global) const;

 private:
  const Plan& plan_;
  EncoderOptions options_;
};

}  // namespace nvfp4::checkpoint
