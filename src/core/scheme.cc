#include "nvfp4/scheme.h"

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {

std::string_view scheme_name(Scheme scheme) { return scheme == Scheme::w4a4 ? "w4a4" : "w4a16"; }

Scheme scheme_from_name(std::string_view name) {
  for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16})
    if (scheme_name(scheme) == name) return scheme;
  throw ValueError(
      fmt::format("scheme = '{}', must be w4a4 (4-bit weights and activations) or w4a16 "
                  "(4-bit weights)",
                  printable(name)),
      ErrorCode::not_a_choice);
}

std::vector<std::string> scheme_names() { return {"w4a4", "w4a16"}; }

}  // namespace nvfp4
