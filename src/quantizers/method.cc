#include "quantizers/method.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
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
  throw ValueError(fmt::format("method = '{}', must be one of {}", name, fmt::join(names, ", ")),
                   ErrorCode::not_a_choice);
}

std::string ChosenMethod::text() const {
  return method->needs == Needs::gram ? fmt::format("{}:{}", method->name, sweeps)
                                      : std::string(method->name);
}

ChosenMethod method_from_text(std::string_view text) {
  const std::size_t colon = text.find(':');
  ChosenMethod chosen{&method_from_name(text.substr(0, colon))};
  if (colon == text.npos) return chosen;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, chosen.sweeps);
  require<ValueError>(chosen.method->needs == Needs::gram && error == std::errc{} && rest == end &&
                          chosen.sweeps >= 0 && chosen.sweeps <= 1000,
                      "method = '{}', must be a name, or gptq:N with N sweeps, from 0 to 1000",
                      text);
  return chosen;
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
