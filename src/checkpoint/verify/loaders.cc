// Checks limits of single loaders in a correct checkpoint.
#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/select.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The limits of a loader. Source: assertions and reads in each loader, docs/verify.md.
struct Loader {
  std::string_view name;
  std::int64_t columns = kBlock;         ///< K must be a multiple of this
  std::int64_t expert_columns = kBlock;  ///< K of experts must be a multiple of this
  /// The format whose layers for multi-token prediction must not be quantized.
  std::string_view no_prediction_of = {};
};

constexpr Loader kLoaders[] = {
    // nvfp4_utils.py: pad_nvfp4_weight_for_cutlass pads rows and columns to 32.
    {.name = kVllm},
    // modelopt_quant.py: "The intermediate size required padding, but padding is also implemented
    // for gated activations"; scales are read in fours.
    {.name = kSglang, .expert_columns = 64, .no_prediction_of = "modelopt"},
    {.name = kTensorRt},
    {.name = kTransformers},
    // A block of llama.cpp's NVFP4 type holds 64 weights.
    {.name = kLlamaCpp, .columns = 64},
};

class LoaderCheck {
 public:
  LoaderCheck(const Subject& subject, const Loader& loader, Findings& findings)
      : subject_(subject), loader_(loader), findings_(findings) {}

  void run() {
    const auto weights = subject_.nvfp4();
    if (weights.empty()) return;
    const CheckpointFormat& format = *weights.front()->names->format;
    if (std::ranges::find(format.loaders, loader_.name) == format.loaders.end())
      return refuse("loader-format", std::string(format.name),
                    fmt::format("the weights are stored as {}, which {} does not read", format.name,
                                loader_.name));
    for (const LogicalTensor* t : weights) {
      const bool expert = !expert_layer_of(t->module()).empty();
      const std::int64_t columns =
          expert ? std::max(loader_.columns, loader_.expert_columns) : loader_.columns;
      if (t->depth() % columns != 0)
        refuse("columns-limit", t->module(),
               fmt::format("{}: {} columns, {} needs a multiple of {}", t->module(), t->depth(),
                           loader_.name, columns));
    }
    if (loader_.name == kVllm) check_single_experts();
    if (loader_.name == kLlamaCpp) check_groups();
    if (loader_.name == kSglang || loader_.name == kTensorRt) check_latent();
    if (loader_.no_prediction_of == format.name) check_prediction();
    if (loader_.name == kTransformers) check_transformers(subject_, findings_);
  }

 private:
  void refuse(std::string_view code, std::string tensor, std::string text) {
    findings_.add_for(loader_.name, Verdict::refuses, code, std::move(tensor), std::move(text));
  }

  /// Checks for single experts of a model with stacks. vLLM's gpt_oss.py has one parameter for all
  /// experts of a layer and ignores other names. It reports the first expert only.
  void check_single_experts() {
    if (std::ranges::none_of(families_of(subject_.model_type), &Family::only_stacks)) return;
    for (const LogicalTensor* t : subject_.nvfp4())
      if (t->shape.size() == 2 && !expert_layer_of(t->module()).empty())
        return findings_.add_for(
            loader_.name, Verdict::misreads, "single-experts", t->module(),
            fmt::format("{}: one expert, and {} reads those of {} as stacks only", t->module(),
                        loader_.name, subject_.model_type));
  }

  /// Checks latent attention. deepseek_weight_loader.py and modeling_deepseekv3.py split the rows
  /// of the stored weight into two matrices of kv_lora_rank columns.
  void check_latent() {
    for (const LogicalTensor* t : subject_.nvfp4())
      if (is_latent_projection(t->module()))
        findings_.add_for(
            loader_.name, Verdict::misreads, "latent-attention", t->module(),
            fmt::format("{} is NVFP4, {} takes its bytes for a matrix", t->module(), loader_.name));
  }

  /// Checks layers for multi-token prediction. deepseek_nextn.py and others build them unquantized
  /// for ModelOpt's NVFP4. It reports the first weight only.
  void check_prediction() {
    const auto marks = prediction_layer_marks(subject_);
    for (const LogicalTensor* t : subject_.nvfp4())
      for (const std::string& mark : marks)
        if (t->module().find(mark) != std::string::npos)
          return refuse(
              "mtp-quantized", t->module(),
              fmt::format("{} is NVFP4, and of a layer for multi-token prediction", t->module()));
  }

  void check_groups() {
    std::map<std::string, std::string> forms;  // form -> a weight of it
    for (const LogicalTensor& t : subject_.tensors)
      if (!t.is_plain()) forms.try_emplace(t.form_name(), t.module());
    if (forms.size() < 2) return;
    const auto first = forms.begin(), second = std::next(first);
    refuse("mixed-groups", second->second,
           fmt::format("{} is {}, {} is {}", first->second, first->first, second->second,
                       second->first));
  }

  const Subject& subject_;
  const Loader& loader_;
  Findings& findings_;
};

}  // namespace

void check_loaders(const Subject& subject, Findings& findings) {
  for (const Loader& loader : kLoaders) LoaderCheck(subject, loader, findings).run();
}

}  // namespace nvfp4::checkpoint
