#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "nvfp4/quantize.h"

/// A quantized matrix in three arrays of the caller, and the options to quantize one.
namespace nvfp4::python {

template <class Array, class View>
struct QuantizedArrays {
  Array codes, scales, global_scale;  // keep the memory alive
  View view;
};
using QuantizedInput = QuantizedArrays<Input, QuantizedView>;
using QuantizedOutput = QuantizedArrays<Output, QuantizedSpan>;

/// QuantizeOptions with the memory that its spans and views refer to.
class Options {
 public:
  /// Converts the options. `globals` is float32 with one entry for the tensor or each vector: [n,
  /// 2] with multiplier and divisor. On the CPU it may be [n]; `divisor` then gives the sense.
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
