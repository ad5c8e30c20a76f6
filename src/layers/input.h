#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "nvfp4/layers.h"

/// What happens to the input of a W4A4 layer.
namespace nvfp4 {

/// How it is quantized.
struct InputQuantizer {
  Quantizer quantizer = Quantizer::max;
  GlobalScope scope = GlobalScope::vector;
  std::optional<GlobalScale> global;  ///< else measured
  std::string backend;

  InputQuantizer() = default;
  /// `stored`: what the weights say of their input.
  InputQuantizer(const ActivationScale& scale, const std::optional<GlobalScale>& stored,
                 Quantizer quantizer_, std::string backend_);

  /// They point into this object.
  QuantizeOptions options(Stream stream) const;
  QuantizedActivation operator()(const char* op, Scheme scheme, const MatrixView& x,
                                 Stream stream) const;
};

/// Memory for a matrix that stays from call to call.
class Rows {
 public:
  /// Uninitialized, or what an earlier call left; always on the same device.
  MatrixSpan get(DType dtype, std::int64_t rows, std::int64_t cols, Device device = {});
  std::span<std::byte> bytes(std::int64_t count, Device device);

 private:
  Buffer data_;
  std::int64_t bytes_ = 0;
};

/// The same for quantized rows.
class QuantizedRows {
 public:
  QuantizedSpan get(std::int64_t rows, std::int64_t cols, GlobalScope scope, Device device = {});

 private:
  Buffer codes_, scales_, global_;
  std::int64_t elements_ = 0, rows_ = 0;
};

/// Throws ShapeError if there is a limit and `rows` is above it.
void require_tokens(const char* op, std::int64_t rows, std::int64_t max_tokens);
/// Throws ValueError unless the scheme is W4A4.
void require_w4a4(const char* op, Scheme scheme);

}  // namespace nvfp4
