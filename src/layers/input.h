#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "nvfp4/layers.h"

/// Quantization of the input of a W4A4 layer, and memory that its calls reuse.
namespace nvfp4 {

/// The quantizer of a layer's input.
struct InputQuantizer {
  Quantizer quantizer = Quantizer::max;
  GlobalScope scope = GlobalScope::vector;
  std::optional<GlobalScale> global;  ///< measured if empty
  std::string backend;

  InputQuantizer() = default;
  /// Combines the scale of the options with the scale that is stored with the weights.
  InputQuantizer(const ActivationScale& scale, const std::optional<GlobalScale>& stored,
                 Quantizer quantizer_, std::string backend_);

  /// Returns options that point into this object.
  QuantizeOptions options(Stream stream) const;
  QuantizedActivation operator()(const char* op, Scheme scheme, const MatrixView& x,
                                 Stream stream) const;
};

/// Memory for a matrix that is reused from call to call.
class Rows {
 public:
  /// Returns a matrix that is uninitialized or holds values of an earlier call. The device must
  /// always be the same.
  MatrixSpan get(DType dtype, std::int64_t rows, std::int64_t cols, Device device = {});
  std::span<std::byte> bytes(std::int64_t count, Device device);

 private:
  Buffer data_;
  std::int64_t bytes_ = 0;
};

/// Memory for quantized rows that is reused from call to call.
class QuantizedRows {
 public:
  QuantizedSpan get(std::int64_t rows, std::int64_t cols, GlobalScope scope, Device device = {});

 private:
  Buffer codes_, scales_, global_;
  std::int64_t elements_ = 0, rows_ = 0;
};

/// Throws ShapeError if there is a limit and `rows` exceeds it.
void require_tokens(const char* op, std::int64_t rows, std::int64_t max_tokens);
/// Throws ValueError unless the scheme is W4A4.
void require_w4a4(const char* op, Scheme scheme);

}  // namespace nvfp4
