#include <vector>

#include "checkpoint/recipe/recipe.h"

namespace nvfp4::checkpoint {

const std::vector<NamedRecipe>& named_recipes() {
  static const std::vector<NamedRecipe> recipes = {
      {"all", R"(about: every linear layer and every expert, which is what no recipe does
rules: []
)"},
      {"mlp", R"(about: MLPs and experts in NVFP4, attention and all else in BF16
rules:
  - match: '*'
    action: keep
  - kind: [mlp, experts, shared_experts]
    action: nvfp4
)"},
      {"experts", R"(about: routed experts in NVFP4, all else in BF16
rules:
  - match: '*'
    action: keep
  - kind: experts
    action: nvfp4
)"},
      {"nvidia",
       R"(about: as NVIDIA publishes; MLPs and experts in NVFP4, attention and the cache of keys and values in FP8
kv_cache: fp8
rules:
  - match: '*'
    action: keep
  - kind: [mlp, experts, shared_experts]
    action: nvfp4
  - kind: attention
    action: fp8
)"},
      {"w4a16", R"(about: every linear layer and every expert, weights only
scheme: w4a16
rules: []
)"},
  };
  return recipes;
}

}  // namespace nvfp4::checkpoint
