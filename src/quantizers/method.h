#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "nvfp4/quantize.h"

/// The ways to quantize a weight of a checkpoint, each with what it has to know of the layer.
namespace nvfp4 {

/// Of the inputs X [tokens, K] of a layer.
enum class Needs : std::uint8_t {
  nothing,
  diagonal,  ///< of the Gram matrix XᵀX: Σ x_k² of each column
  gram,      ///< XᵀX itself
};

struct Method {
  std::string_view name;
  Quantizer scales;  ///< decides the global scale, and the block scales where nothing else does
  Needs needs = Needs::nothing;
};

/// In the order of the manual.
const std::deque<Method>& methods();
/// Throws ValueError that lists the known names.
const Method& method_from_name(std::string_view name);
/// "the diagonal of the Gram matrix", for errors.
std::string_view needs_text(Needs needs);

/// A method for as long as the object lives. For tests: nothing else runs when it comes and goes.
class AddedMethod {
 public:
  explicit AddedMethod(const Method& method);
  ~AddedMethod();
  AddedMethod(const AddedMethod&) = delete;
  AddedMethod& operator=(const AddedMethod&) = delete;
};

}  // namespace nvfp4
