#include "quantizers/method.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/require.h"

namespace nvfp4 {
namespace {

constexpr Method kMethods[] = {
    {"max", Quantizer::max},
    {"four_over_six", Quantizer::four_over_six},
    {"mse", Quantizer::mse},
    {"weighted", Quantizer::mse, Needs::diagonal},
    {"gptq", Quantizer::mse, Needs::gram},
};

}  // namespace

std::span<const Method> methods() { return kMethods; }

const Method& method_from_name(std::string_view name) {
  const auto* const it = std::ranges::find(kMethods, name, &Method::name);
  if (it != std::end(kMethods)) return *it;
  std::vector<std::string_view> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  throw ValueError(
      fmt::format("quantizer = '{}', must be one of {}", name, fmt::join(names, ", ")));
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
