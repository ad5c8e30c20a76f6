#include <algorithm>

#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using enum Severity;
using enum Repair;

/// The beginning of the fix of a guess.
constexpr std::string_view kUncertain = "verify with --source to be certain; ";

// The columns are code, severity, meaning, effect in a loader, fix, and what repair does unless it
// mends the fault by itself.
constexpr FindingKind kKinds[] = {
    // Files
    {"interrupted", error, "an interrupted run left the folder",
     "it loads part of the model, or fails on a missing shard",
     "run the same command with --resume", impossible},
    {"unreadable-file", error, "the content of a file does not match its name",
     "it fails while loading", "copy or download the file again", impossible},
    {"changed-file", error,
     "a file is not the one that was written, by the list nvfp4.files.json, or has no hash there",
     "it may compute something else", "copy or download the file again, or write it again"},
    {"missing-shard", error,
     "the index is missing, and so are shards that the names of the others count (-of-00003)",
     "it loads part of the model", "copy or download the missing files", impossible},
    {"bad-index", error, "the index does not have the form of a safetensors index",
     "it fails while loading", "nvfp4 repair rebuilds it", rewritten},
    {"no-index", warning, "several shards without an index",
     "some take the shards by name, others refuse the model", "nvfp4 repair writes it", rewritten},
    {"index-missing-tensor", error, "the index names a tensor that its file does not hold",
     "it fails with a key error", "nvfp4 repair rebuilds the index", rewritten},
    {"index-unlisted-tensor", error, "the index does not name a tensor of the files",
     "it leaves the tensor out silently; a scale then keeps its initial value",
     "nvfp4 repair rebuilds the index", rewritten},
    {"index-total-size", warning, "the index's total_size is not the sum of the tensors",
     "tools that plan memory by it plan wrongly", "nvfp4 repair rebuilds the index", rewritten},
    {"stored-twice", error, "the same weight is stored twice",
     "which one counts depends on the order of the files", "remove one of them", impossible},
    {"missing-layers", error, "a layer that num_hidden_layers counts has no tensor",
     "it fails, or uses random weights",
     "copy or download the missing tensors, or correct num_hidden_layers", impossible},
    {"missing-embedding", error, "no token embedding, though every layer is there",
     "it fails, or uses random weights", "copy or download the missing tensor"},
    {"missing-head", error,
     "no output head, and config.json says that the embedding does not take its place",
     "it fails, or uses random weights",
     "copy or download the missing tensor, or set tie_word_embeddings"},
    {"head-tied", note, "no output head, and config.json does not say tie_word_embeddings",
     "it takes the embedding, or random weights, by a default of its own",
     "add tie_word_embeddings to config.json"},
    {"missing-norm", error, "the final norm, or a norm that other layers have, is missing",
     "it fails, or uses random weights", "copy or download the missing tensor"},
    {"missing-linear", warning,
     "a decoder layer lacks a linear layer that the others have, but has those fused with it",
     "it fails, or uses random weights",
     "copy or download the missing tensor, or quantize the source again"},
    {"missing-expert", warning,
     "an expert is missing: the layer has experts with higher numbers, or the configuration and "
     "other layers count more",
     "it fails, or uses random weights",
     "copy or download the missing tensors, or quantize the source again"},
    {"not-quantized", error, "no weight is quantized in a known way",
     "it loads the model as it is, if it is complete", "nvfp4 quantize, or verify its output",
     impossible},
    // Tensors of a weight
    {"missing-scale", error, "codes without their scales",
     "it fails, or leaves the scales uninitialized", "quantize the tensor again", from_source},
    {"missing-global-scale", error, "codes without a global scale",
     "the scale stays uninitialized: garbage or NaN", "quantize the tensor again", from_source},
    {"orphan-scale", error, "a scale without its codes",
     "it fails with an unexpected key; the weight may be lost",
     "restore the codes or remove the scale"},
    {"unknown-form", warning, "codes or corrections of a weight in an unknown quantization",
     "depends on the program that wrote it; nothing is checked",
     "quantize the original model, or use the loader that it was written for", impossible},
    {"wrong-dtype", error, "codes or scales of a dtype that the format does not have",
     "it fails, or reads the bytes as something else", "quantize the tensor again", from_source},
    {"wrong-shape", error, "scales that do not fit their codes", "it fails with a shape mismatch",
     "quantize the tensor again", from_source},
    {"swizzled-scales", error, "block scales are stored in 128x4 tiles where the format has rows",
     "it tiles them again: every weight gets a wrong scale", "nvfp4 repair puts them in order"},
    {"scales-look-swizzled", warning, "block scales vary along rows as tiles read as rows do",
     "if they are tiled, every weight gets a wrong scale",
     "verify with --source to be certain; nvfp4 repair --scales swizzled"},
    {"nibble-order", error, "the element of the even column is in the high nibble",
     "it swaps neighbouring weights", "nvfp4 repair puts them in order"},
    {"wrong-size", error,
     "an embedding, head or norm does not have the size that config.json implies",
     "it fails with a shape mismatch, or reads beyond the tensor",
     "copy or download the tensor again, or correct config.json"},
    // Values
    {"not-finite", error, "an embedding, head or norm has NaN or infinite values",
     "NaN in every output", "copy or download the file again"},
    {"rows-repeat", error, "all rows of an embedding or head are the same",
     "every token looks the same", "copy or download the file again"},
    {"codes-zero", warning, "all codes of a matrix are zero", "every weight of the matrix is zero",
     "compare with the source; if it has other values, quantize the tensor again"},
    {"codes-zero-everywhere", error, "all codes of every matrix of a kind are zero",
     "the layers compute nothing", "quantize the original model again"},
    {"scale-nan", error, "block scales that are NaN", "NaN in every output",
     "quantize the tensor again", from_source},
    {"scale-negative", error, "block scales with the sign bit set, or negative scales of FP8",
     "GPUs ignore the sign of a block scale, other devices negate the block's weights",
     "nvfp4 repair clears the sign of block scales; for FP8, copy or download the file again"},
    {"scale-zero", warning, "block scales are zero and their codes are not",
     "the weights of these blocks are zero", "quantize the tensor again"},
    {"scale-too-large", error, "scales of FP8, MXFP4, INT8 or INT4 give weights of 2688 or more",
     "weights are off by orders of magnitude", "copy or download the file again"},
    {"code-nan", error, "codes of FP8 weights that are NaN", "NaN in every output",
     "copy or download the file again", impossible},
    {"scale-saturated", warning,
     "many block scales are 448, the largest, and few are just below; with --source: the global "
     "scale cuts the largest weights",
     "weights of these blocks may have been cut: the global scale is too small",
     "verify with --source to be certain; quantize the tensor again"},
    {"scale-subnormal", warning,
     "most block scales of a tensor are subnormal (below 2^-6); with --source: any of them, where "
     "another global scale would avoid it",
     "kernels that flush subnormals read zeros; others have at most three bits of each scale",
     "quantize the tensor again: its global scale is too large"},
    {"global-scale-invalid", error, "a global scale that is NaN, infinite, zero or negative",
     "NaN or zero weights", "quantize the tensor again", from_source},
    {"global-scale-sense", error,
     "a global scale gives weights of 2688 or more: the divisor stands where the multiplier "
     "belongs, or the reverse",
     "weights are off by many orders of magnitude", "nvfp4 repair takes the reciprocal"},
    {"global-scale-tiny", warning,
     "a global scale gives weights below 2^-64, or an input scale activations that small",
     "the weights are zero in FP16 and in sums with others; activations all saturate",
     "compare with the source; if it has no such values, copy or download the file again"},
    {"missing-input-scale", error, "no input scale, but the configuration has 4-bit activations",
     "the scale stays uninitialized: NaN or nonsense", "nvfp4 repair supplies one"},
    {"unexpected-input-scale", note, "an input scale, but only weights are quantized",
     "most ignore it", "none needed"},
    {"input-scale-invalid", error, "an input scale that is NaN, infinite, zero or negative",
     "NaN or zero activations", "nvfp4 repair supplies one"},
    {"input-scale-sense", warning,
     "an input scale for activations of 43008 or more: the divisor may stand where the multiplier "
     "belongs",
     "blocks of activations below 0.09 become zero", "calibrate again"},
    {"input-scale-default", note, "input scales of exactly 1: activations were not measured",
     "blocks of activations below 0.006 become zero",
     "quantize again with --statistics or --input-amax"},
    // Fused layers
    {"fused-globals", error, "layers that loaders fuse have different global scales",
     "vLLM and SGLang take one of them for all; TensorRT-LLM stops",
     "nvfp4 repair makes them equal"},
    {"fused-globals-far", error,
     "layers that loaders fuse have global scales more than 458752 times apart: one is wrong",
     "vLLM and SGLang take one of them for all; TensorRT-LLM stops",
     "copy or download the file again; nvfp4 repair --source quantizes them again", from_source},
    {"fused-input-scales", warning, "layers that loaders fuse have different input scales",
     "vLLM and SGLang take the largest or the first; TensorRT-LLM stops",
     "nvfp4 repair makes them equal"},
    {"fused-partly", error,
     "of the layers that loaders fuse (experts of a layer included) some are quantized and some "
     "are not, or some with their inputs and some without",
     "it refuses the model", "quantize all of them, or exclude all", impossible},
    // Configuration
    {"bad-config", error,
     "config.json or hf_quant_config.json does not have the form that it must have",
     "it fails while loading", "copy config.json of the original model, then nvfp4 repair",
     rewritten},
    {"no-config", warning, "no config.json", "it cannot tell the architecture",
     "copy config.json of the original model, then nvfp4 repair"},
    {"undeclared", error, "tensors are quantized, and no configuration says so",
     "it takes the codes for unquantized weights and fails", "nvfp4 repair writes it", rewritten},
    {"declared-format", error, "the configuration names another format than the files have",
     "it looks for tensors that are missing", "nvfp4 repair rebuilds it", rewritten},
    {"declared-only", error, "the configuration says NVFP4, and no tensor is NVFP4",
     "it looks for scales that are missing", "remove quantization_config", impossible},
    {"group-size", error, "the configuration's group_size is not 16", "it refuses or misreads",
     "nvfp4 repair rebuilds it", rewritten},
    {"hf-quant-keys", error, "hf_quant_config.json lacks a key that vLLM requires",
     "vLLM refuses the model", "nvfp4 repair rebuilds it", rewritten},
    {"configs-disagree", error, "the configuration files name different algorithms or methods",
     "which one counts depends on the loader", "nvfp4 repair rebuilds them", rewritten},
    {"excludes-differ", warning, "config.json and hf_quant_config.json exclude different modules",
     "which one counts depends on the loader", "nvfp4 repair rebuilds both", rewritten},
    {"excluded-quantized", error, "the configuration excludes a quantized module",
     "it builds an unquantized layer and fails on the shape", "nvfp4 repair rebuilds the list",
     rewritten},
    {"excluded-by-substring", warning, "an exclusion occurs in the name of a quantized module",
     "loaders that match substrings build an unquantized layer and fail",
     "write the exclusion as a whole name or a glob"},
    {"kept-not-excluded", error, "a linear layer is neither quantized nor excluded",
     "it looks for scales that are missing: it fails, or computes NaN",
     "nvfp4 repair rebuilds the list", rewritten},
    {"not-in-quantized-layers", error,
     "neither quantized_layers nor a group names a quantized module",
     "it builds an unquantized layer and fails on the shape", "nvfp4 repair rebuilds the list",
     rewritten},
    {"quantized-layer-absent", warning,
     "quantized_layers names a module that does not exist or is not quantized",
     "it ignores the entry, or fails if the module exists unquantized",
     "nvfp4 repair rebuilds the list", rewritten},
    {"mtp-dropped", warning,
     "config.json counts layers for multi-token prediction, and the files have none",
     "speculative decoding fails or uses random weights",
     "add the tensors from the original, or set the count to 0"},
    // The cache of keys and values
    {"cache-scale-missing", note,
     "the configuration declares a quantized KV cache, and no layer has scales for it",
     "it takes 1 as the scale", "calibrate, and quantize with --statistics"},
    {"cache-scale-partly", warning,
     "an attention layer lacks a scale of keys or values that other layers have",
     "it takes 1 as the scale, or the scale of the other one",
     "quantize again with statistics of the whole model"},
    {"cache-scale-negative", error, "a scale of keys or values is negative",
     "vLLM takes 1 instead, others negate the cached values",
     "quantize again with statistics of the whole model"},
    {"cache-scale-undeclared", note,
     "scales of keys and values exist, and no configuration declares a quantized KV cache",
     "it ignores the scales", "none needed"},
    // Limits of loaders
    {"loader-format", error, "the loader does not read this format", "it refuses the model",
     "nvfp4 convert"},
    {"quant-algo", error, "the loader does not know the configuration's quant_algo",
     "it refuses the model", "quantize the original model with another --scheme or --format"},
    {"no-gguf-family", error, "nvfp4 convert does not know llama.cpp's names for this model",
     "llama.cpp reads .gguf files only", "use another loader"},
    {"parallel-cut", error, "so many GPUs cannot share the layer: --tensor-parallel",
     "it stops while loading", "use another number of GPUs, or exclude the layer: --ignore"},
    {"columns-limit", error, "a number of columns (K) that the loader cannot split or load",
     "it stops on an assertion", "exclude these layers: --ignore"},
    {"single-experts", error, "experts are stored one by one, and the loader reads stacks",
     "it leaves them out silently: they have random weights", "nvfp4 convert --to bf16"},
    {"latent-attention", error, "kv_b_proj of multi-head latent attention is quantized",
     "it takes the packed bytes for a matrix of half the columns",
     "exclude it, as nvfp4 quantize does by default"},
    {"mtp-quantized", error, "layers for multi-token prediction are quantized",
     "it builds them unquantized; speculative decoding fails on their shapes",
     "exclude them: --ignore"},
    {"mixed-groups", error, "weights are quantized in more than one way",
     "it reads one group of layers only", "nvfp4 convert"},
    // GGUF
    {"gguf-scale", error, "block scales are above 0x7E",
     "llama.cpp ignores the sign, and reads 0x7F as 0 and 0xFF as 480",
     "convert it again; nvfp4 repair clears the signs of the folder first"},
    {"gguf-no-global-scale", note, "NVFP4 weights have no global scale",
     "it takes 1: converters leave out a scale of 1, and old ones lost other values, too",
     "compare with the source: nvfp4 verify --source"},
    {"gguf-unread-scale", error, "a global scale stands where llama.cpp reads none",
     "it stops: wrong number of tensors", "quantize again without it: --ignore"},
    {"gguf-layout", error, "the tensors do not follow one another in the order of the list",
     "it refuses the file", "convert it again"},
    {"gguf-name", error, "a tensor name is longer than 63 bytes", "it refuses the file",
     "convert it again"},
    {"gguf-architecture", error, "the key general.architecture is missing", "it refuses the file",
     "convert it again"},
    {"gguf-key", error, "a key is missing, or the tensors contradict it",
     "it stops on the key or on a shape", "convert it again with a complete config.json"},
    {"gguf-tensor", error, "a tensor that the architecture requires is missing",
     "it stops: missing tensor", "convert it again"},
    {"gguf-tokenizer", error, "the tokenizer is missing, or its size is not that of the embeddings",
     "it refuses the file", "add one made by llama.cpp's converter (--vocab-only)"},
    {"gguf-split", note, "the file is one of several of a model", "it reads them together",
     "verify each of them"},
    // Against the source
    {"not-compared", note, "errors prevent the comparison with the source", "as the errors say",
     "correct them, then verify with --source again"},
    {"source-missing", error, "a weight of the source is missing",
     "it fails on a missing key, or uses random weights", "quantize the source again", impossible},
    {"source-derived", note,
     "buffers of the source, weights tied to others, or scales of a KV cache that is not declared, "
     "are left out",
     "it computes or ties them itself, or has no use for them", "none needed"},
    {"source-extra", note, "the source does not have this tensor", "most ignore it", "none needed"},
    {"source-differs", warning, "an unquantized tensor differs from the source",
     "it computes something else",
     "give --source the checkpoint that was quantized; another revision differs, too"},
    {"other-source", error, "most unquantized tensors are far from the source: it is another model",
     "unknown", "give --source the checkpoint that this one was made from", impossible},
    {"far-from-source", error,
     "a weight is farther from the source than rounding to 4 bits explains",
     "it computes something else", "nvfp4 repair --source, or quantize again", from_source},
};

constexpr std::string_view kLoaders[] = {checkpoint::kVllm,      checkpoint::kSglang,
                                         checkpoint::kTensorRt,  checkpoint::kTransformers,
                                         checkpoint::kWithNvfp4, checkpoint::kDiffusers,
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

void Findings::add(std::string_view code, std::string tensor, std::string text) {
  add_with_effect(std::string(kind_of(code).effect), code, std::move(tensor), std::move(text));
}

void Findings::add_with_effect(std::string effect, std::string_view code, std::string tensor,
                               std::string text) {
  const FindingKind& kind = kind_of(code);
  findings_.push_back({std::string(code), kind.severity, std::move(tensor), std::move(text),
                       std::move(effect), std::string(kind.fix)});
}

void Findings::add_for(std::string_view loader, Verdict verdict, std::string_view code,
                       std::string tensor, std::string text) {
  if (!loader_.empty() && loader != loader_) return;
  // Only the verdict is reported, since many tensors may have the same limit.
  if (loader_.empty()) {
    const auto known = std::ranges::find_if(
        limits_, [&](const Limit& l) { return l.loader == loader && l.verdict == verdict; });
    if (known != limits_.end()) {
      ++known->count;
      return;
    }
  }
  const FindingKind& kind = kind_of(code);
  limits_.push_back({loader,
                     verdict,
                     {std::string(code), kind.severity, std::move(tensor), std::move(text),
                      std::string(kind.effect), std::string(kind.fix)}});
}

void Findings::withdraw_if(const std::function<bool(const Finding&)>& wrong) {
  std::erase_if(findings_, wrong);
}

void Findings::mark_compared() {
  for (Finding& f : findings_)
    if (f.fix.starts_with(kUncertain)) f.fix.erase(0, kUncertain.size());
}

bool Findings::has_errors() const {
  return std::ranges::find(findings_, error, &Finding::severity) != findings_.end();
}

void Findings::judge(LoaderVerdict verdict) {
  std::erase_if(judged_, [&](const LoaderVerdict& v) { return v.loader == verdict.loader; });
  judged_.push_back(std::move(verdict));
}

std::vector<LoaderVerdict> Findings::verdicts() const {
  std::vector<LoaderVerdict> all;
  for (const std::string_view loader : kLoaders) {
    if (!loader_.empty() && loader != loader_) continue;
    const auto judged = std::ranges::find(judged_, loader, &LoaderVerdict::loader);
    LoaderVerdict& v = all.emplace_back();
    if (judged != judged_.end()) v = *judged;
    v.loader = loader;
    const auto count = [&](Verdict verdict, const Finding& f, std::int64_t times = 1) {
      if (!is_bad(verdict)) return;
      v.findings += times;
      // A loader that refuses the model never misreads it.
      if (is_bad(v.verdict) && !(verdict == Verdict::refuses && v.verdict != verdict)) return;
      v.verdict = verdict;
      v.code = f.code;
      v.text = f.text;
    };
    for (const Limit& limit : limits_)
      if (limit.loader == loader) count(limit.verdict, limit.finding, limit.count);
    for (const Finding& f : findings_) count(verdict_of(f.code, f.severity, loader), f);
  }
  return all;
}

std::vector<Finding> Findings::take() {
  if (!loader_.empty()) {
    std::erase_if(findings_, [&](const Finding& f) { return !concerns(f.code, loader_); });
    for (Finding& f : findings_)
      if (is_bad(verdict_of(f.code, f.severity, loader_))) f.severity = error;
    for (Limit& limit : limits_)
      if (limit.loader == loader_) findings_.push_back(std::move(limit.finding));
  }
  std::ranges::stable_sort(findings_, {}, &Finding::severity);
  return std::move(findings_);
}

}  // namespace checkpoint
}  // namespace nvfp4
