#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "layers/input.h"
#include "nvfp4/tensor_core_gemm.h"

/// What the layers of a GPU are made of.
namespace nvfp4 {

/// One matrix for each group, of that group's parts, whose outputs follow one another: all groups
/// of one shape. `dense`: how dense parts are quantized. Complete when the call returns. Throws
/// ShapeError, ValueError, UnsupportedError, DeviceError. `gate_up`: as in FragmentWeights.
FragmentWeights fragment_parts(const char* op, std::span<const std::vector<WeightView>> groups,
                               Quantizer dense, std::string_view backend, Device device,
                               std::optional<GateUp> gate_up = {});

/// Memory for the decoding of quantized operands.
std::span<std::byte> decoding_memory(Rows& memory, const QuantizedShape& x, Device device);

/// Linear layers of one input on a GPU. Calls share memory: a lock keeps their work in order on one
/// stream, the caller does on several.
class FragmentLinear {
 public:
  FragmentLinear(const char* op, std::span<const std::vector<WeightView>> groups,
                 const LinearOptions& options, InputQuantizer input);

  const FragmentWeights& weights() const { return weights_; }

  /// Every row to every group.
  void forward(const char* op, const MatrixView& x, const MatrixSpan& out, Stream stream) const;
  void forward(const char* op, const QuantizedView& x, const MatrixSpan& out, Stream stream) const;
  /// The rows up to row_ends[g] to group g.
  void forward_rows(const char* op, const MatrixView& x, std::span<const std::int32_t> row_ends,
                    const MatrixSpan& out, Stream stream) const;
  void forward_rows(const char* op, const QuantizedView& x, std::span<const std::int32_t> row_ends,
                    const MatrixSpan& out, Stream stream) const;

 private:
  template <class X>
  void run(const X& x, const std::span<const std::int32_t>* row_ends, const MatrixSpan& out,
           Stream stream) const;
  void quantize_and_run(const char* op, const MatrixView& x,
                        const std::span<const std::int32_t>* row_ends, const MatrixSpan& out,
                        Stream stream) const;

  FragmentWeights weights_;
  Matrix bias_;
  InputQuantizer input_;
  Scheme scheme_ = Scheme::nvfp4;
  bool batch_invariant_ = false;
  std::int64_t max_tokens_ = 0;
  PartialSums* partial_sums_ = nullptr;
  mutable std::mutex mutex_;
  mutable QuantizedRows rows_;
  mutable Rows decoded_;
};

}  // namespace nvfp4
