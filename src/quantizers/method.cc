#include "quantizers/method.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/require.h"

namespace nvfp4 {
namespace {

std::deque<Method>& known() {
  static std::deque<Method> methods = {
      {"max", Quantizer::max},
      {"four_over_six", Quantizer::four_over_six},
      {"mse", Quantizer::mse},
      {"weighted", Quantizer::mse, Needs::diagonal},
      {"gptq", Quantizer::mse, Needs::gram},
  };
  return methods;  // a deque: addresses are stable when one is added
}

}  // namespace

const std::deque<Method>& methods() { return known(); }

AddedMethod::AddedMethod(const Method& method) { known().push_back(method); }
AddedMethod::~AddedMethod() { known().pop_back(); }

const Method& method_from_name(std::string_view name) {
  const auto it = std::ranges::find(known(), name, &Method::name);
  if (it != known().end()) return *it;
  std::vector<std::string_view> names;
  for (const Method& method : known()) names.push_back(method.name);
  throw ValueError(fmt::format("quantizer = '{}', must be one of {}", name, fmt::join(names, ", ")),
                   ErrorCode::not_a_choice);
}

std::string_view needs_text(Needs needs) {
  switch (needs) {
    case Needs::nothing:
      return "nothing";
    case Needs::diagonal:
      return "the mean square of each input channel";
    case Needs::gram:
      break;
  }
  return "the Gram matrix of each layer's inputs";
}

}  // namespace nvfp4
