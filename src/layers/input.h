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

/// Memory of a caller, taken from its beginning. Without memory it counts what would be taken.
struct Arena {
  std::byte* memory = nullptr;
  std::int64_t taken = 0;

  std::byte* take(std::int64_t bytes) {
    std::byte* const place = memory == nullptr ? nullptr : memory + taken;
    taken += ceil_div(bytes, kAlignment) * kAlignment;
    return place;
  }
  static constexpr std::int64_t kAlignment = 256;
};

/// Memory for a matrix that is reused from call to call.
class Rows {
 public:
  /// Returns a matrix that is uninitialized or holds values of an earlier call. The device must
  /// always be the same. Throws ShapeError if place() gave less memory.
  MatrixSpan get(DType dtype, std::int64_t rows, std::int64_t cols, Device device = {});
  std::span<std::byte> bytes(std::int64_t count, Device device);
  /// Takes the memory of all later calls from the caller's instead of allocating it.
  void place(std::byte* memory, std::int64_t bytes);

 private:
  Buffer data_;
  std::byte* placed_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Memory for quantized rows that is reused from call to call.
class QuantizedRows {
 public:
  QuantizedSpan get(std::int64_t rows, std::int64_t cols, GlobalScope scope, Device device = {});
  /// Takes the memory for `elements` in up to `rows` rows from the caller's.
  void place(Arena& arena, std::int64_t rows, std::int64_t elements);

 private:
  Rows codes_, scales_, global_;
};

/// Throws ShapeError if there is a limit and `rows` exceeds it.
void require_tokens(const char* op, std::int64_t rows, std::int64_t max_tokens);
/// Throws ValueError unless the scheme is W4A4.
void require_w4a4(const char* op, Scheme scheme);

}  // namespace nvfp4
