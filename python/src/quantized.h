#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "nvfp4/quantize.h"

/// A quantized matrix in three arrays of the caller, and the options of quantizing one.
namespace nvfp4::python {

template <class Array, class View>
struct QuantizedArrays {
  Array codes, scales, global_scale;  // keep the memory alive
  View view;
};
using QuantizedInput = QuantizedArrays<Input, QuantizedView>;
using QuantizedOutput = QuantizedArrays<Output, QuantizedSpan>;

/// QuantizeOptions with what their spans and views point to.
class Options {
 public:
  /// `globals`: float32, one for each tensor or vector: [n, 2], multiplier and divisor; on the CPU
  /// also [n], in the sense that `divisor` says.
  Options(const std::string& quantizer, const std::string& axis, int block,
          const std::string& layout, const std::string& scope, std::optional<Input> globals,
          bool divisor, std::optional<Input> weights, std::optional<Input> hessian,
          bool check_finite, std::string backend, std::uintptr_t stream);
  QuantizeOptions get() const;

 private:
  QuantizeOptions options_;
  std::vector<GlobalScale> host_globals_;
  std::optional<Input> globals_, weights_, hessian_;
  std::string backend_;
};

}  // namespace nvfp4::python
