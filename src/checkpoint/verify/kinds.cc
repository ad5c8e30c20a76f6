#include <algorithm>
#include <array>

#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using enum Severity;

// code, severity, meaning, what a loader does, fix. docs/verify.md is this table.
constexpr FindingKind kKinds[] = {
    // Files
    {"interrupted", error, "an interrupted run left the folder",
     "it loads a part of the model, or fails on a missing shard",
     "run the same command with --resume"},
    {"unreadable-file", error, "a file that cannot be read as what it is named",
     "it fails while loading", "copy or download the file again"},
    {"missing-shard", error,
     "shards that the others' names count (-of-00003) are missing, as is the index",
     "it loads a part of the model", "copy or download the missing files"},
    {"bad-index", error, "the index is not what safetensors indexes are", "it fails while loading",
     "nvfp4 repair rebuilds it"},
    {"no-index", warning, "several shards without an index",
     "some take the shards by name, others refuse", "nvfp4 repair writes it"},
    {"index-missing-tensor", error, "the index names a tensor that its file does not hold",
     "it fails with a key error", "nvfp4 repair rebuilds the index"},
    {"index-unlisted-tensor", error, "a tensor that the index does not name",
     "it is silently left out: a scale then keeps its initial value",
     "nvfp4 repair rebuilds the index"},
    {"index-total-size", warning, "the index's total_size is not the sum of the tensors",
     "tools that plan memory by it are wrong", "nvfp4 repair rebuilds the index"},
    {"stored-twice", error, "the same weight is stored twice",
     "which one counts depends on the order of the files", "remove one of them"},
    {"missing-layers", error, "no tensor of a layer that num_hidden_layers counts",
     "it fails, or uses random weights",
     "copy or download the missing tensors, or correct num_hidden_layers"},
    {"missing-linear", warning,
     "a linear layer that other layers have, and this one has only its partners",
     "it fails, or uses random weights",
     "copy or download the missing tensor, or quantize the source again"},
    {"missing-expert", warning,
     "an expert is missing: others of the layer have higher numbers, or the configuration and "
     "other "
     "layers have more",
     "it fails, or uses random weights",
     "copy or download the missing tensors, or quantize the source again"},
    {"not-quantized", error, "no weight is quantized in a way that is known here",
     "it loads the model as it is, if that is whole", "nvfp4 quantize, or verify its output"},
    // Tensors of a weight
    {"missing-scale", error, "codes without their scales",
     "it fails, or leaves the scales uninitialized", "quantize the tensor again"},
    {"missing-global-scale", error, "codes without a global scale",
     "the scale stays uninitialized: garbage or NaN", "quantize the tensor again"},
    {"orphan-scale", error, "a scale without the codes that it belongs to",
     "it fails with an unexpected key, or the weight was lost", "find the codes or drop the scale"},
    {"unknown-form", warning,
     "codes, or a correction of a weight, of a quantization that is not known here",
     "what its own writer says; nothing of it is checked",
     "convert the original model, or see its loader"},
    {"wrong-dtype", error, "codes or scales of a dtype that the format does not have",
     "it fails, or reads the bytes as something else", "quantize the tensor again"},
    {"wrong-shape", error, "scales that do not fit their codes", "it fails with a shape mismatch",
     "quantize the tensor again"},
    {"swizzled-scales", error, "block scales on disk in 128x4 tiles where row-major is meant",
     "it tiles them once more: every weight gets a wrong scale", "nvfp4 repair puts them in order"},
    {"scales-look-swizzled", warning,
     "block scales vary along rows as only tiles read row by row would",
     "if they are tiled, every weight gets a wrong scale",
     "verify with --source to be sure; nvfp4 repair --scales swizzled"},
    {"nibble-order", error, "the even column is in the high nibble",
     "neighbouring weights change places", "nvfp4 repair puts them in order"},
    // Values
    {"scale-nan", error, "block scales that are NaN", "NaN in every output",
     "quantize the tensor again"},
    {"scale-negative", error, "block scales with the sign bit set",
     "GPUs ignore the sign, others flip the block's weights", "nvfp4 repair clears the sign"},
    {"scale-zero", warning, "block scales of zero over codes that are not",
     "the weights of these blocks are zero", "quantize the tensor again"},
    {"scale-too-large", error,
     "scales of FP8 or MXFP4 weights under which these reach 2688 or more",
     "weights are off by orders of magnitude", "copy or download the file again"},
    {"scale-subnormal", warning, "all block scales of a tensor are below 2^-6",
     "kernels that flush them lose the tensor; at most three bits are left anyway",
     "quantize the tensor again: its global scale is too large"},
    {"global-scale-invalid", error, "a global scale that is NaN, infinite, zero or negative",
     "NaN or zero weights", "quantize the tensor again"},
    {"global-scale-sense", error,
     "a global scale that would make the largest weight 2688 or more: divisor and multiplier mixed "
     "up",
     "weights are off by many orders of magnitude", "nvfp4 repair takes the reciprocal"},
    {"missing-input-scale", error,
     "no input scale though the configuration wants 4-bit activations",
     "the scale stays uninitialized: NaN or gibberish", "nvfp4 repair supplies one"},
    {"unexpected-input-scale", note, "an input scale though only weights are quantized",
     "most ignore it", "none needed"},
    {"input-scale-invalid", error, "an input scale that is NaN, infinite, zero or negative",
     "NaN or zero activations", "nvfp4 repair supplies one"},
    {"input-scale-sense", warning,
     "an input scale for activations of 43008 or more: divisor and multiplier may be mixed up",
     "blocks of activations below 0.09 become zero", "calibrate again"},
    {"input-scale-default", note, "input scales of exactly 1: nobody measured activations",
     "blocks of activations below 0.006 become zero", "calibrate, and quantize with --input-amax"},
    // Fused layers
    {"fused-globals", error, "layers that loaders fuse have different global scales",
     "vLLM and SGLang take one of them for all; TensorRT-LLM stops",
     "nvfp4 repair makes them equal"},
    {"fused-input-scales", warning, "layers that loaders fuse have different input scales",
     "vLLM and SGLang take the largest or the first; TensorRT-LLM stops",
     "nvfp4 repair makes them equal"},
    {"fused-partly", error,
     "one of the layers that loaders fuse is quantized, another is not; a layer's experts are "
     "fused",
     "it refuses the model", "quantize or keep all of them"},
    // Configuration
    {"bad-config", error, "config.json or hf_quant_config.json is not what it must be",
     "it fails while loading", "copy config.json of the original model, then nvfp4 repair"},
    {"no-config", warning, "no config.json", "it cannot tell the architecture",
     "copy config.json of the original model, then nvfp4 repair"},
    {"undeclared", error, "quantized tensors, and no configuration that says so",
     "it takes the codes for plain weights and fails", "nvfp4 repair writes it"},
    {"declared-format", error, "the configuration names another format than the files have",
     "it looks for tensors that are not there", "nvfp4 repair rebuilds it"},
    {"declared-only", error, "the configuration says NVFP4, and no tensor is quantized so",
     "it looks for scales that are not there", "remove quantization_config"},
    {"group-size", error, "the configuration's group_size is not 16", "it refuses or misreads",
     "nvfp4 repair rebuilds it"},
    {"hf-quant-keys", error, "hf_quant_config.json lacks a key that vLLM insists on",
     "vLLM refuses the model", "nvfp4 repair rebuilds it"},
    {"configs-disagree", error, "config.json and hf_quant_config.json name different algorithms",
     "which one counts depends on the loader", "nvfp4 repair rebuilds both"},
    {"excludes-differ", warning, "config.json and hf_quant_config.json exclude different modules",
     "which one counts depends on the loader", "nvfp4 repair rebuilds both"},
    {"excluded-quantized", error, "a quantized module that the configuration excludes",
     "it builds a plain layer and fails on its shape", "nvfp4 repair rebuilds the list"},
    {"excluded-by-substring", warning, "an exclusion that occurs in a quantized module's name",
     "loaders that look for substrings build a plain layer and fail",
     "write the exclusion as a whole name or a glob"},
    {"kept-not-excluded", error, "a linear layer that is not quantized and not excluded",
     "it waits for scales that are not there: a failure, or NaN", "nvfp4 repair rebuilds the list"},
    {"not-in-quantized-layers", error,
     "a quantized module that neither quantized_layers nor a group names",
     "it builds a plain layer and fails on its shape", "nvfp4 repair rebuilds the list"},
    {"quantized-layer-absent", warning, "quantized_layers names a module that is not there",
     "nothing, or a failure if the module exists unquantized", "nvfp4 repair rebuilds the list"},
    {"mtp-dropped", warning,
     "config.json counts multi-token prediction layers, the files have none",
     "speculative decoding fails or uses random weights",
     "add the tensors from the original, or set the count to 0"},
    // The cache of keys and values
    {"cache-scale-missing", note,
     "the configuration says how keys and values are cached, and no layer has scales for them",
     "it takes 1 as their scale", "calibrate, and quantize with --statistics"},
    {"cache-scale-partly", warning,
     "an attention without a scale of keys or values, and others have both",
     "it takes 1 as the scale, or that of the other of the two",
     "quantize again with statistics of the whole model"},
    {"cache-scale-negative", error, "a scale of keys or values that is negative",
     "vLLM takes 1 in its place, others flip the signs of what is cached",
     "quantize again with statistics of the whole model"},
    {"cache-scale-undeclared", note,
     "scales of keys and values, and no configuration that says how these are cached",
     "it ignores them", "none needed"},
    // Limits of loaders
    {"loader-format", error, "a format that the loader does not read", "it refuses the model",
     "nvfp4 convert"},
    {"columns-limit", error, "a depth (columns) that a loader cannot cut or load",
     "it stops on an assertion", "keep these layers: --ignore"},
    {"experts-lose-global-scale", error,
     "experts that transformers 5 stacks and then reads without their global scale",
     "their weights are thousands of times too large, silently",
     "nvfp4 convert --to bf16, or use transformers 4"},
    {"single-experts", error, "experts one by one of a model whose experts are read as stacks",
     "it leaves them out without a word: they have random weights", "nvfp4 convert --to bf16"},
    {"init-needs-weight", error,
     "a quantized layer whose plain weight the model's own initialization in transformers asks for",
     "it stops: 'Linear' object has no attribute 'weight'",
     "keep these layers: --ignore, or nvfp4 convert --to bf16"},
    {"names-differ", error,
     "a list of the configuration names a module as the checkpoint does, and transformers calls it "
     "otherwise",
     "it takes a plain layer for a quantized one, or the reverse",
     "nvfp4 repair rebuilds the list, or write the entry that the finding names"},
    {"vocabulary-quantized", error,
     "a matrix of the vocabulary is quantized that transformers holds as an embedding or ties to "
     "one",
     "it stops on the tied weight, or computes with random embeddings",
     "keep it: --ignore, or nvfp4 convert --to bf16"},
    {"latent-attention", error, "kv_b_proj of multi-head latent attention is quantized",
     "it takes the packed bytes for a matrix of half the columns",
     "keep it, as nvfp4 quantize does by default"},
    {"mtp-quantized", error, "layers for multi-token prediction are quantized",
     "it builds them plain, speculative decoding fails on their shapes", "keep them: --ignore"},
    {"mixed-groups", error, "weights quantized in more than one way",
     "it takes one group of layers only", "nvfp4 convert"},
    // GGUF
    {"gguf-scale", error, "block scales above 0x7E",
     "llama.cpp ignores the sign, and takes 0x7F for 0 and 0xFF for 480",
     "convert it again; nvfp4 repair clears signs before"},
    {"gguf-no-global-scale", note, "NVFP4 weights without a global scale beside them",
     "it takes 1, as converters leave it out then; old ones lost it",
     "compare with the source: nvfp4 verify --source"},
    {"gguf-unread-scale", error, "a global scale where llama.cpp reads none",
     "it stops: wrong number of tensors", "quantize again without it: --ignore"},
    {"gguf-layout", error, "tensors that do not follow one another in the order of the list",
     "it refuses the file", "convert it again"},
    {"gguf-name", error, "a tensor name above 63 bytes", "it refuses the file", "convert it again"},
    {"gguf-architecture", error, "no general.architecture", "it refuses the file",
     "convert it again"},
    {"gguf-key", error, "a key that is missing, or that the tensors contradict",
     "it stops on the key or on a shape", "convert it again with a whole config.json"},
    {"gguf-tensor", error, "a tensor that the architecture must have is missing",
     "it stops: missing tensor", "convert it again"},
    {"gguf-tokenizer", error, "no tokenizer, or one of another size than the embeddings",
     "it refuses the file", "add one made by llama.cpp's converter (--vocab-only)"},
    {"gguf-split", note, "one of several files of a model", "it reads them together",
     "verify each of them"},
    // Against the source
    {"not-compared", note, "errors stand in the way of the comparison with the source",
     "what the errors say", "mend them, then verify with --source again"},
    {"source-missing", error, "a weight of the source that is not here",
     "it fails on a missing key, or uses random weights", "quantize the source again"},
    {"source-derived", note, "buffers of the source, or weights tied to others, that are not here",
     "it computes or ties them itself", "none needed"},
    {"source-extra", note, "a tensor that the source does not have", "most ignore it",
     "none needed"},
    {"source-differs", warning, "a tensor that was kept, and differs from the source",
     "it computes something else",
     "give --source the very checkpoint that was quantized: other revisions differ, too"},
    {"other-source", error,
     "most of what was not quantized is far from the source: that is another model",
     "nothing is known about it", "give --source the checkpoint that this one was made of"},
    {"far-from-source", error, "a weight that is farther from the source than 4 bits explain",
     "it computes something else", "nvfp4 repair --source, or quantize again"},
};

constexpr std::string_view kLoaders[] = {checkpoint::kVllm, checkpoint::kSglang,
                                         checkpoint::kTensorRt, checkpoint::kTransformers,
                                         checkpoint::kLlamaCpp};

const FindingKind& kind_of(std::string_view code) {
  const auto kind = std::ranges::find(kKinds, code, &FindingKind::code);
  require<ValueError>(kind != std::end(kKinds), "finding code {}: unknown", code);
  return *kind;
}

}  // namespace

std::string_view severity_name(Severity severity) {
  return severity == error ? "error" : severity == warning ? "warning" : "note";
}

std::span<const FindingKind> finding_kinds() { return kKinds; }
std::span<const std::string_view> known_loaders() { return kLoaders; }

namespace checkpoint {

void Findings::add(std::string_view code, std::string tensor, std::string text,
                   std::string effect) {
  const FindingKind& kind = kind_of(code);
  if (effect.empty()) effect = kind.effect;
  findings_.push_back({std::string(code), kind.severity, std::move(tensor), std::move(text),
                       std::move(effect), std::string(kind.fix)});
}

void Findings::add_for(std::string_view loader, Verdict verdict, std::string_view code,
                       std::string tensor, std::string text) {
  const FindingKind& kind = kind_of(code);
  limits_.push_back({loader,
                     verdict,
                     {std::string(code), kind.severity, std::move(tensor), std::move(text),
                      std::string(kind.effect), std::string(kind.fix)}});
}

void Findings::withdraw_if(const std::function<bool(const Finding&)>& wrong) {
  std::erase_if(findings_, wrong);
}

bool Findings::has_errors() const {
  return std::ranges::find(findings_, error, &Finding::severity) != findings_.end();
}

std::vector<LoaderVerdict> Findings::verdicts() const {
  std::vector<LoaderVerdict> all;
  for (const std::string_view loader : kLoaders) {
    if (!loader_.empty() && loader != loader_) continue;
    LoaderVerdict& v = all.emplace_back();
    v.loader = loader;
    const auto count = [&](Verdict verdict, const Finding& f) {
      if (verdict == Verdict::reads) return;
      ++v.findings;
      // What refuses never comes to misread.
      if (v.verdict != Verdict::reads && !(verdict == Verdict::refuses && v.verdict != verdict))
        return;
      v.verdict = verdict;
      v.code = f.code;
      v.text = f.text;
    };
    for (const Limit& limit : limits_)
      if (limit.loader == loader) count(limit.verdict, limit.finding);
    for (const Finding& f : findings_) count(verdict_of(f.code, f.severity, loader), f);
  }
  return all;
}

std::vector<Finding> Findings::take() {
  if (!loader_.empty()) {
    std::erase_if(findings_, [&](const Finding& f) { return !concerns(f.code, loader_); });
    for (Finding& f : findings_)
      if (verdict_of(f.code, f.severity, loader_) != Verdict::reads) f.severity = error;
    for (Limit& limit : limits_)
      if (limit.loader == loader_) findings_.push_back(std::move(limit.finding));
  }
  std::ranges::stable_sort(findings_, {}, &Finding::severity);
  return std::move(findings_);
}

}  // namespace checkpoint
}  // namespace nvfp4
