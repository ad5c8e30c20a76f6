// Checks limits of single loaders in a correct checkpoint, and sets their verdicts.
#include <algorithm>
#include <map>

#include "checkpoint/base/json_members.h"
#include "checkpoint/engines/engines.h"
#include "checkpoint/families/experts.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/verify/checks.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The limits of a loader. Source: assertions and reads in each loader.
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
    {.name = kWithNvfp4},
    {.name = kDiffusers},
    // A block of llama.cpp's NVFP4 type holds 64 weights.
    {.name = kLlamaCpp, .columns = 64},
};

bool is_expert(const LogicalTensor* t) { return !expert_layer_of(t->module()).empty(); }

class LoaderCheck {
 public:
  LoaderCheck(const Subject& subject, const Loader& loader, Findings& findings)
      : subject_(subject), loader_(loader), findings_(findings) {}

  void run() {
    const auto weights = subject_.nvfp4();
    if (weights.empty()) return;
    const CheckpointFormat& format = *weights.front()->names->format;
    if (!reads_format(format))
      return refuse("loader-format", std::string(format.name),
                    fmt::format("the weights are stored as {}, which {} does not read", format.name,
                                loader_.name));
    judge(format);
    for (const LogicalTensor* t : weights) {
      const std::int64_t columns =
          is_expert(t) ? std::max(loader_.columns, loader_.expert_columns) : loader_.columns;
      if (t->depth() % columns != 0)
        refuse("columns-limit", t->module(),
               fmt::format("{}: {} columns, {} needs a multiple of {}", t->module(), t->depth(),
                           loader_.name, columns));
    }
    if (loader_.name == kVllm) check_single_experts();
    if (loader_.name == kLlamaCpp) check_groups();
    if (loader_.name == kSglang || loader_.name == kTensorRt) check_latent();
    if (loader_.no_prediction_of == format.name) check_prediction();
  }

 private:
  bool reads_format(const CheckpointFormat& format) const {
    return std::ranges::find(format.loaders, loader_.name) != format.loaders.end();
  }

  /// Returns the Python package that alone can say whether it reads a checkpoint, or "".
  std::string_view asked() const {
    for (const std::string_view package : {kTransformers, kDiffusers})
      if (loader_.name.starts_with(package)) return package;
    return {};
  }

  /// Sets the verdict that holds unless a finding contradicts it.
  void judge(const CheckpointFormat& format) {
    LoaderVerdict v;
    v.loader = loader_.name;
    if (loader_.name == kLlamaCpp)
      judge_llama_cpp(format, v);
    else if (const Engine* engine = find_engine(loader_.name); asked().empty())
      judge_by(*engine, v);
    else
      v.text = fmt::format("only {} can say: nvfp4 verify --for {} of the Python package asks it",
                           asked(), loader_.name);
    findings_.judge(std::move(v));
  }

  void judge_by(const Engine& engine, LoaderVerdict& v) {
    v.version = engine.version;
    const Declared* declared = subject_.declared();
    if (declared != nullptr && !declared->is_compressed_tensors() && !declared->algorithm.empty() &&
        !engine.accepts(declared->algorithm))
      refuse("quant-algo", declared->file,
             fmt::format("{}: quant_algo = {}, which {} does not know", declared->file,
                         declared->algorithm, engine.version));
    const std::string name = architecture();
    if (name.empty())
      v.text = "config.json names no architecture";
    else if (!engine.declares(name))
      v.text = fmt::format("{} does not list {}", engine.version, name);
    else if (!engine.no_experts.empty() && std::ranges::any_of(subject_.nvfp4(), is_expert))
      v.text = fmt::format("no test loads experts with {}: {}", engine.version, engine.no_experts);
    else if (!engine.was_loaded(subject_.model_type, name))
      v.text = fmt::format("{} lists {}, and no test loads model_type {}", engine.version, name,
                           printable(subject_.model_type));
    else {
      v.verdict = Verdict::reads;
      v.text = fmt::format("tests load {}", name);
    }
  }

  void judge_llama_cpp(const CheckpointFormat& format, LoaderVerdict& v) {
    const bool is_file = !format.extension.empty();
    const gguf::Architecture* known =
        is_file ? subject_.gguf_family : gguf::find_architecture(subject_.model_type);
    if (is_file && known != nullptr) {
      v.verdict = Verdict::reads;
      v.text = fmt::format("nvfp4 convert writes this family: {}", known->name);
    } else if (is_file) {
      v.text = "the names of this architecture in llama.cpp are not known";
    } else if (known != nullptr) {
      v.text = "after nvfp4 convert to a .gguf file";
    } else {
      refuse("no-gguf-family", "config.json",
             fmt::format("model_type = {}, which nvfp4 convert cannot write for llama.cpp",
                         subject_.model_type.empty() ? "(none)" : printable(subject_.model_type)));
    }
  }

  /// Returns the first entry of "architectures" of config.json, or "".
  std::string architecture() const {
    const Json& names = list_of(subject_.config, "architectures");
    return !names.empty() && names[0].is_string() ? printable(names[0].get<std::string>()) : "";
  }

  void refuse(std::string_view code, std::string tensor, std::string text) {
    findings_.add_for(loader_.name, Verdict::refuses, code, std::move(tensor), std::move(text));
  }

  /// Checks for single experts of a model with stacks. vLLM's gpt_oss.py has one parameter for all
  /// experts of a layer and ignores other names. It reports the first expert only.
  void check_single_experts() {
    if (std::ranges::none_of(families_of(subject_.model_type), &Family::only_stacks)) return;
    for (const LogicalTensor* t : subject_.nvfp4())
      if (t->shape.size() == 2 && is_expert(t))
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
    const PredictionLayers layers(subject_);
    for (const LogicalTensor* t : subject_.nvfp4())
      if (layers.hold(t->module()))
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

void check_loaders(const Subject& subject, Findings& findings) {
  for (const Loader& loader : kLoaders) LoaderCheck(subject, loader, findings).run();
}

std::vector<int> check_tensor_parallel(const Subject& subject, std::optional<int> wanted,
                                       Findings& findings) {
  std::vector<int> possible;
  const std::int64_t heads = attention_heads(subject.config);
  for (int gpus = 1; gpus <= 64; ++gpus)
    if (heads % gpus == 0) possible.push_back(gpus);
  if (wanted && heads % *wanted != 0)
    findings.add("parallel-cut", subject.config_file,
                 "{} attention heads, for {} GPUs a multiple of {} is needed", heads, *wanted,
                 *wanted);
  for (const LogicalTensor* t : subject.nvfp4()) {
    const std::string module = t->module();
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    if (wanted)
      if (const std::string why = cut(*t, last, *wanted); !why.empty())
        findings.add("parallel-cut", module, "{}: {}", module, why);
    std::erase_if(possible, [&](int gpus) { return !cut(*t, last, gpus).empty(); });
  }
  return possible;
}

}  // namespace nvfp4::checkpoint
