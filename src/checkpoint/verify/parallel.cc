// Checks which numbers of GPUs can share every layer, as engines with tensor parallelism cut them.
#include <algorithm>

#include "checkpoint/families/model_config.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Last names of layers whose columns (K) are shared. Source: RowParallelLinear in vLLM and SGLang.
constexpr std::string_view kByColumns[] = {"o_proj", "down_proj", "w2",     "wo",
                                           "fc2",    "out_proj",  "c_proj", "dense_4h_to_h"};
/// Last names of layers whose rows are shared. Heads of k and v may be repeated instead.
constexpr std::string_view kByRows[] = {"q_proj", "gate_proj", "up_proj", "gate_up_proj",
                                        "w1",     "w3",        "fc1",     "dense_h_to_4h"};

bool holds(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Returns why `gpus` cannot share the layer, or "" if they can.
std::string cut(const LogicalTensor& t, std::string_view last, int gpus) {
  if (holds(kByColumns, last) && t.depth() % (gpus * kBlock) != 0)
    return fmt::format("{} columns, for {} GPUs a multiple of {} is needed", t.depth(), gpus,
                       gpus * kBlock);
  if (holds(kByRows, last) && t.outputs() % gpus != 0)
    return fmt::format("{} rows, for {} GPUs a multiple of {} is needed", t.outputs(), gpus, gpus);
  return {};
}

/// Returns the number of attention heads of the language model, or 0 if config.json has none.
std::int64_t attention_heads(const Json& config) {
  if (!config.is_object()) return 0;
  return gguf::integer_of(language_model_config(config), {"num_attention_heads"}, 0);
}

}  // namespace

std::vector<int> check_tensor_parallel(const Subject& subject, std::optional<int> wanted,
                                       Findings& findings) {
  std::vector<int> possible;
  const std::int64_t heads = attention_heads(subject.config);
  for (int gpus = 1; gpus <= 64; ++gpus)
    if (heads % gpus == 0) possible.push_back(gpus);
  if (wanted && heads % *wanted != 0)
    findings.add("parallel-cut", subject.config_file,
                 fmt::format("{} attention heads, for {} GPUs a multiple of {} is needed", heads,
                             *wanted, *wanted));
  for (const LogicalTensor* t : subject.nvfp4()) {
    const std::string module = t->module();
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    if (wanted)
      if (const std::string why = cut(*t, last, *wanted); !why.empty())
        findings.add("parallel-cut", module, fmt::format("{}: {}", module, why));
    std::erase_if(possible, [&](int gpus) { return !cut(*t, last, gpus).empty(); });
  }
  return possible;
}

}  // namespace nvfp4::checkpoint
