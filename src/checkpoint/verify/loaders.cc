// What single loaders cannot take though the checkpoint is right.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "checkpoint/expert_layers.h"
#include "checkpoint/select.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Source: what each loader asserts or reads, docs/verify.md.
struct Loader {
  std::string_view name;
  std::array<std::string_view, 3> schemes;  ///< that it reads; "" ends the list
  std::int64_t columns = kBlock;            ///< depth must be a multiple
  std::int64_t expert_columns = kBlock;     ///< of experts' weights
  std::int64_t rows = 1;
};

constexpr Loader kLoaders[] = {
    {.name = "vllm",
     .schemes = {"modelopt", "compressed-tensors", "quark"},
     .columns = 32,
     .rows = 32},
    // modelopt_quant.py: "weight_scale.shape[2] % 16 == 0" of fused experts.
    {.name = "sglang", .schemes = {"modelopt", "compressed-tensors"}, .expert_columns = 256},
    {.name = "tensorrt-llm", .schemes = {"modelopt"}},
    {.name = "transformers", .schemes = {"compressed-tensors"}},
    // A block of its NVFP4 type holds 64 weights.
    {.name = "llama.cpp", .schemes = {"modelopt", "compressed-tensors", "gguf"}, .columns = 64},
};

class LoaderCheck {
 public:
  LoaderCheck(const Subject& subject, const Loader& loader, Findings& findings)
      : subject_(subject), loader_(loader), findings_(findings) {}

  void run(bool only) {
    const auto weights = subject_.nvfp4();
    if (weights.empty()) return;
    const std::string_view scheme = weights.front()->names->scheme;
    if (only) check_scheme(scheme);
    if (scheme == "gguf" && loader_.name != "llama.cpp") return;
    for (const LogicalTensor* t : weights) {
      const bool expert = !expert_layer_of(t->module()).empty();
      const std::int64_t columns =
          expert ? std::max(loader_.columns, loader_.expert_columns) : loader_.columns;
      if (t->depth() % columns != 0)
        findings_.add("columns-limit", t->module(),
                      fmt::format("{}: {} columns, {} needs a multiple of {}", t->module(),
                                  t->depth(), loader_.name, columns));
      if (t->outputs() % loader_.rows != 0)
        findings_.add("rows-limit", t->module(),
                      fmt::format("{}: {} rows, {} needs a multiple of {}", t->module(),
                                  t->outputs(), loader_.name, loader_.rows));
    }
    if (loader_.name == "llama.cpp") check_groups();
    if (only && loader_.name == "transformers") check_experts();
    if (only && (loader_.name == "sglang" || loader_.name == "tensorrt-llm")) check_latent();
    if (only && loader_.name == "sglang" && scheme == "modelopt") check_prediction();
  }

 private:
  void check_scheme(std::string_view scheme) {
    for (const std::string_view known : loader_.schemes)
      if (known == scheme) return;
    findings_.add(
        "loader-format", std::string(scheme),
        fmt::format("the weights are stored as {}, which {} does not read", scheme, loader_.name));
  }

  /// huggingface/transformers#48371. Once for each layer; a global scale of 1 may be lost.
  void check_experts() {
    std::set<std::string> named;
    for (const LogicalTensor* t : subject_.nvfp4()) {
      const std::string layer(expert_layer_of(t->module()));
      const bool matters = t->names->scheme == "compressed-tensors" && !layer.empty() &&
                           std::ranges::any_of(t->globals, [](const GlobalScale& g) {
                             return g.multiplier != 1.0f;
                           });
      if (matters && named.insert(layer).second)
        findings_.add("experts-lose-global-scale", layer,
                      fmt::format("{}: transformers 5 stacks these experts and does not read their "
                                  "weight_global_scale ({} in {})",
                                  layer, t->globals.front().divisor, t->module()));
    }
  }

  /// deepseek_weight_loader.py and modeling_deepseekv3.py cut the rows of the stored weight into
  /// two matrices, of kv_lora_rank columns.
  void check_latent() {
    for (const LogicalTensor* t : subject_.nvfp4())
      if (is_latent_projection(t->module()))
        findings_.add(
            "latent-attention", t->module(),
            fmt::format("{} is NVFP4, {} takes its bytes for a matrix", t->module(), loader_.name));
  }

  /// deepseek_nextn.py and others take no quantization from ModelOpt's NVFP4. Once.
  void check_prediction() {
    const auto marks = prediction_layer_marks(subject_);
    for (const LogicalTensor* t : subject_.nvfp4())
      for (const std::string& mark : marks)
        if (t->module().find(mark) != std::string::npos)
          return findings_.add(
              "mtp-quantized", t->module(),
              fmt::format("{} is NVFP4, and of a layer for multi-token prediction", t->module()));
  }

  void check_groups() {
    std::map<std::string, std::string> forms;  // and a weight of each
    for (const LogicalTensor& t : subject_.tensors)
      if (!t.is_plain()) forms.try_emplace(t.form_name(), t.module());
    if (forms.size() < 2) return;
    const auto first = forms.begin(), second = std::next(first);
    findings_.add("mixed-groups", second->second,
                  fmt::format("{} is {}, {} is {}", first->second, first->first, second->second,
                              second->first));
  }

  const Subject& subject_;
  const Loader& loader_;
  Findings& findings_;
};

}  // namespace

void check_loaders(const Subject& subject, Findings& findings) {
  const bool all = findings.judges_for("vllm") && findings.judges_for("sglang");
  for (const Loader& loader : kLoaders)
    if (findings.judges_for(loader.name)) LoaderCheck(subject, loader, findings).run(!all);
}

}  // namespace nvfp4::checkpoint
