#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "nvfp4/quantize.h"

/// The methods that quantize a weight of a checkpoint, and the statistics that each needs.
namespace nvfp4 {

/// Statistics of the inputs X [tokens, K] of a layer.
enum class Needs : std::uint8_t {
  nothing,
  diagonal,  ///< diagonal of the Gram matrix XᵀX: Σ x_k² of each column
  gram,      ///< XᵀX itself
};

/// A quantization method.
struct Method {
  std::string_view name;
  Quantizer scales;  ///< quantizer of the global scale and, by default, of the block scales
  Needs needs = Needs::nothing;
};

/// Returns all methods, in the order of the manual.
const std::deque<Method>& methods();
/// Returns the method with this name. Throws ValueError, which lists the known names.
const Method& method_from_name(std::string_view name);

/// A method as a user chooses it.
struct ChosenMethod {
  const Method* method = nullptr;
  int sweeps = 4;  ///< for Needs::gram: largest number of sweeps of the descent

  /// Returns the text of method_from_text(), such as "mse" or "gptq:4".
  std::string text() const;
};
/// Returns the method of a text: its name, or "gptq:N" for at most N sweeps. Throws ValueError.
ChosenMethod method_from_text(std::string_view text);

/// Returns the statistics as text for errors, such as "the Gram matrix of each layer's inputs".
std::string_view needs_text(Needs needs);

/// A method that exists while this object lives. It is for tests: nothing else may run while it is
/// added or removed.
class AddedMethod {
 public:
  explicit AddedMethod(const Method& method);
  ~AddedMethod();
  AddedMethod(const AddedMethod&) = delete;
  AddedMethod& operator=(const AddedMethod&) = delete;
};

}  // namespace nvfp4
