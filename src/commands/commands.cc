#include "nvfp4/commands.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "commands/builders.h"
#include "commands/machine_commands.h"
#include "commands/rank_options.h"
#include "core/require.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/convert.h"
#include "nvfp4/quantize.h"
#include "nvfp4/verify.h"

namespace nvfp4 {
namespace {

using namespace command_table;

std::vector<std::string> loader_names() {
  const auto loaders = known_loaders();
  return {loaders.begin(), loaders.end()};
}

CommandOption scheme(std::string fallback, std::string text) {
  return option("--scheme", "NAME", std::move(fallback), std::move(text), scheme_names());
}

/// "modelopt (the default), compressed-tensors; comfyui: one file in OUTPUT; ..."
CommandOption format() {
  std::string text;
  std::vector<std::string> names;
  for (const FormatInfo& f : output_formats()) {
    if (!text.empty()) text += f.note.empty() ? ", " : "; ";
    text += f.name;
    if (names.empty()) text += " (the default)";
    if (!f.note.empty()) text += ": " + f.note;
    if (!f.extension.empty()) text += ", the default for an OUTPUT of that ending";
    names.push_back(f.name);
  }
  return option("--format", "NAME", "", std::move(text), std::move(names));
}

/// Of the outputs that are one file: "; gguf if not given and OUTPUT ends so".
std::string targets_by_name() {
  std::string text;
  for (const FormatInfo& f : output_formats())
    if (!f.extension.empty()) text += fmt::format("; {} if not given and OUTPUT ends so", f.name);
  return text;
}

CommandOption quantizer(std::string text) {
  return option("--quantizer,--scale-search", "NAME", "mse", std::move(text), quantizer_names());
}

CommandOption device() {
  return option("--device", "NAME", "cpu",
                "what encodes the weights: cpu, the default; cuda or cuda:N, a GPU; auto, the "
                "first GPU if it can be used. The output is the same");
}

CommandOption report() {
  return of_the_command(
      option("--report", "FILE", "", "write everything about each tensor as JSON"));
}

/// What --report writes.
CommandOption json_report() {
  return json("everything about each tensor, as JSON, in place of the summary");
}
CommandOption top(std::string fallback, std::string what) {
  std::string text = fmt::format("{}; {} if not given", what, fallback);
  return of_the_command(option("--top", "N", std::move(fallback), std::move(text)));
}

/// Of the commands that may write a form with less in it than they read.
Options losses() {
  return {flag("--drop",
               "leave out what the form has no place for (GGUF: multi-token prediction, scales of "
               "caches), else it is an error"),
          flag("--force",
               "take weights whose scales are broken (NaN, infinite, far too large), with a "
               "warning; an error otherwise")};
}

/// Of the commands that write a checkpoint.
Options run_flags() {
  return {flag("--resume", "go on with an interrupted run, same options"),
          flag("--overwrite", "replace what OUTPUT holds"),
          flag("--dry-run", "only say what would be done"), quiet("no progress, no summary")};
}

Options joined(std::initializer_list<Options> parts) {
  Options all;
  for (const Options& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Command quantize_command() {
  return {
      "quantize", "quantize_checkpoint", "Quantize a checkpoint to NVFP4",
      joined(
          {{argument("INPUT",
                     "model folder, one .safetensors or .gguf file, or a name on the Hugging Face "
                     "Hub, org/model: its copy in the cache, else it is downloaded, shard by shard "
                     "while they are quantized"),
            argument("OUTPUT", "folder to write, new or empty; or a .gguf file"),
            scheme("nvfp4",
                   "nvfp4: 4-bit weights and activations, the default; nvfp4a16: weights only"),
            format(),
            option("--quantizer,--scale-search", "NAME", "",
                   "how block scales are chosen: max, four_over_six, or mse, the default: least "
                   "squared error over all scales; weighted, the default with statistics: errors "
                   "count by the mean square of their input channel; gptq: GPTQ, then descent over "
                   "scales and codes together, with the Gram matrices of the statistics",
                   method_names()),
            option("--statistics,--imatrix", "FILE", "",
                   "what calibration saw of the layers' inputs: a file of python -m "
                   "nvfp4.calibrate, or an importance matrix of llama.cpp in GGUF"),
            option(
                "--sweeps", "N", "4",
                "passes of gptq's descent over a weight, at most; 4 if not given; 0: GPTQ alone"),
            option("--recipe", "NAME|FILE", "",
                   fmt::format("which layers become what: {}, or a file of rules in YAML",
                               fmt::join(recipe_names(), ", "))),
            option("--bits", "B", "", "choose layers that stay FP8 or BF16, for B bits a weight"),
            option("--size", "BYTES", "", "the same for an output of that size, such as 24GiB"),
            repeatable(option("--merge", "FOLDER[=W]", "",
                              "LoRA adapter of PEFT to add, with weight W or 1; repeatable")),
            repeatable(option("--ignore", "PATTERN", "",
                              "tensors to leave alone, besides the usual ones; repeatable")),
            repeatable(option("--include", "PATTERN", "",
                              "tensors to quantize though usually left alone; repeatable")),
            repeatable(option("--fuse", "NAMES", "",
                              "modules that share one global scale, such as w1,w3; repeatable")),
            option("--input-amax", "FILE", "",
                   "JSON: module name or pattern to the largest activation; names count first, "
                   "then the first pattern that matches; 2688 if none does"),
            threads_option(),
            device(),
            backend(),
            report(),
            rank_option("several write one OUTPUT, on a file system that all see"),
            ranks_option(),
            option("--push", "ORG/NAME", "",
                   "upload OUTPUT to the Hugging Face Hub as this model when it is whole; private "
                   "if the hub does not have it yet"),
            json_report()},
           losses(),
           {flag("--keep-dtype",
                 "leave the rest of a model in FP32 as it is; else it becomes BF16, but for router "
                 "biases and the like")},
           run_flags()}),
      R"(
INPUT may hold BF16, FP16, FP32, FP8 and MXFP4 weights. Those that are NVFP4
already keep their codes and scales; --ignore dequantizes them. A folder gets a
model card, README.md, or README-NVFP4.md beside that of INPUT.

Patterns are exact names, globs (*, ?), or "re:" and a regular expression, in
Perl's syntax, which Python's is near to; they match the whole name of the
tensor or of its module.

Environment:
  NVFP4_BACKEND           backend when --backend is not given
  NVFP4_THREADS           threads when --threads is not given
  NO_COLOR                no colours, if set to anything
  HF_HUB_CACHE, HF_HOME   where models of the hub are kept
  HF_HUB_OFFLINE          nothing is downloaded, if set to 1
  NVFP4_HUB_PYTHON        a Python with huggingface_hub, in place of hf's own

Examples:
  nvfp4 quantize meta-llama/Llama-3.1-8B Llama-3.1-8B-NVFP4 --device auto
  nvfp4 quantize meta-llama/Llama-3.1-8B out --push me/Llama-3.1-8B-NVFP4
  nvfp4 quantize Llama-3.1-8B out --scheme nvfp4a16 --recipe mlp
  nvfp4 quantize DeepSeek-V3 out --ignore 're:.*self_attn.*' --report out.json
)"};
}

Command convert_command() {
  const std::vector<std::string> targets = conversion_targets();
  CommandOption to =
      option("--to", "FORM", "", fmt::format("{}{}", fmt::join(targets, ", "), targets_by_name()),
             targets);
  return {"convert", "convert", "Write a quantized checkpoint in another form",
          joined({{argument("INPUT",
                            "model folder, .safetensors or .gguf file: NVFP4 of any kind, MXFP4, "
                            "FP8"),
                   argument("OUTPUT", "folder to write, new or empty; --to gguf: a .gguf file"),
                   std::move(to),
                   scheme("",
                          "nvfp4 (W4A4) or nvfp4a16 (weights only); as in the input if not "
                          "given"),
                   quantizer("how block scales of FP8 weights are chosen: max, four_over_six, or "
                             "mse, the default"),
                   option("--input-amax", "FILE", "",
                          "for FP8 and MXFP4 weights, JSON: module name or pattern to the largest "
                          "activation; 2688 if not given"),
                   threads_option(), device(), backend(), report(), json_report()},
                  losses(),
                  {flag("--decode",
                        "FP8 and MXFP4 beside 4-bit weights that FORM cannot hold become BF16, "
                        "else they are an error")},
                  run_flags()}),
          R"(
NVFP4 weights are not rounded again: codes and scales change places, and the
same tensors come back from a conversion back. MXFP4 weights keep their values.

Examples:
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to compressed-tensors
  nvfp4 convert gpt-oss-20b out --to modelopt
  nvfp4 convert DeepSeek-V3 out --to modelopt
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to bf16
  nvfp4 convert Llama-3.1-8B-NVFP4 llama.gguf --to gguf   # for llama.cpp
  nvfp4 convert llama.gguf out --to modelopt
)"};
}

Command inspect_command() {
  return {
      "inspect",
      "inspect",
      "Show what a checkpoint holds",
      {argument("PATH", "model folder, or one .safetensors or .gguf file"),
       option("--tensor", "NAME", "", "only this tensor, and the first of its blocks"),
       of_the_command(
           option("--row", "R", "0", "of that tensor, whose blocks are shown; 0 if not given")),
       of_the_command(option("--blocks", "N", "4", "of that row to show; 4 if not given")),
       json("everything about each tensor, as JSON"),
       in_python("histograms",  // Python says the opposite
                 flag("--no-histogram", "read headers only: fast, no scale ranges and no codes")),
       threads_option(), quiet("no progress")},
      R"(
All scales are shown as multipliers: x = element * block scale * global scale.

Examples:
  nvfp4 inspect Llama-3.1-8B-NVFP4
  nvfp4 inspect out --tensor model.layers.0.self_attn.q_proj.weight
  nvfp4 inspect out --tensor model.layers.0.mlp.up_proj --row 7 --blocks 2
  nvfp4 inspect out --json | jq '.tensors[].global_scale'
)"};
}

Command compare_command() {
  return {
      "compare", "compare", "Measure how far the tensors of two checkpoints are from each other",
      joined(
          {{argument("A", "model folder, .safetensors or .gguf file: the true values"),
            argument("B", "the one to judge; NVFP4 is dequantized"),
            top("12", "tensors to list, worst first"), json("everything, as JSON"),
            option(
                "--html", "FILE", "",
                "also write a page for people: errors by layer, worst tensors, codes and scales"),
            option("--against", "C", "",
                   "for the page: another quantization of A, such as a vendor's, beside B"),
            option("--run", "FILE", "",
                   "for the page: the --report of the run that made B: by gptq it has output "
                   "errors, and "
                   "what each row was quantized by; by --bits or --size the curve of error over "
                   "bits"),
            option("--statistics", "FILE", "",
                   "for the page: what calibration saw, for the tokens of each expert")},
           shared_work_options(),
           {threads_option(), quiet("no progress")}}),
      R"(
Relative error is |a - b| / |a| (L2); SQNR is 20 log10 of its inverse. That of
all tensors together is decided by those with the largest norms; beside it are
the median of the tensors and the worst of them. Exit status: 0 compared, 3 a
or b is incomplete, or they have no tensor in common.

Examples:
  nvfp4 compare Llama-3.1-8B Llama-3.1-8B-NVFP4
  nvfp4 compare a b --html report.html
  nvfp4 compare a b --html page.html --run run.json
  nvfp4 compare model ours --against theirs --html page.html
  nvfp4 compare a b --json | jq '.tensors[:3]'
)"};
}

Command verify_command() {
  std::vector<std::string> loaders = loader_names();
  std::string text = fmt::format("judge for one loader: {}; a table of all if not given",
                                 fmt::join(loaders, ", "));
  return {
      "verify", "verify", "Find what is wrong with a quantized checkpoint, before a loader does",
      joined(
          {{argument("PATH", "model folder, or one .safetensors or .gguf file"),
            option("--source", "DIR", "", "what it was quantized from: every weight is compared"),
            in_python("loader",  // "for" is a word of the language
                      option("--for", "LOADER", "", std::move(text), std::move(loaders))),
            top("3", "findings of a kind to show"), json("everything, as JSON")},
           shared_work_options(),
           {threads_option(), quiet("no progress")}}),
      R"(
docs/verify.md explains every code. Exit status: 0 nothing is broken (there may
be warnings); 3 the files have faults, nothing is quantized, or no known loader
of this format reads them; with --for, that loader refuses or misreads them.

Examples:
  nvfp4 verify Llama-3.1-8B-NVFP4
  nvfp4 verify out --source Llama-3.1-8B
  nvfp4 verify model.gguf
  nvfp4 verify out --for tensorrt-llm --json | jq '.findings[].code'
)"};
}

Command repair_command() {
  return {
      "repair", "repair", "Write a broken checkpoint again, with its faults put right",
      joined(
          {{argument("PATH", "model folder"), argument("OUTPUT", "folder to write; new or empty"),
            option("--source", "DIR", "",
                   "what it was quantized from: what cannot be put right otherwise is quantized "
                   "again"),
            option("--scales", "ORDER", "linear",
                   "how block scales lie in PATH: linear, the default, or swizzled",
                   {"linear", "swizzled"}),
            option("--nibbles", "ORDER", "low",
                   "which nibble the even column is in: low, the default, or high",
                   {"low", "high"}),
            option("--input-amax", "FILE", "",
                   "JSON: module name or pattern to the largest activation, for missing input "
                   "scales"),
            quantizer("for what is quantized again: max, four_over_six, or mse, the default"),
            threads_option(), device(), backend(), top("3", "changes of a kind to show"),
            json("everything, as JSON")},
           run_flags()}),
      R"(
PATH is never changed. What was done to each tensor, and what that lost, is
shown; --json lists all of it. Exit status 3 if the result is still broken.

Examples:
  nvfp4 repair Llama-3.1-8B-NVFP4 out
  nvfp4 repair broken out --source Llama-3.1-8B
)"};
}

Command sample_command() {
  return {"sample",
          "sample",
          "Make a synthetic BF16 checkpoint with real names and shapes",
          {argument("OUTPUT", "folder to write; new or empty"),
           option("--arch", "NAME", "llama", "llama (the default: Llama-3.1-8B) or deepseek-v3",
                  {"llama", "deepseek-v3"}),
           option("--layers", "N", "", "decoder layers, 1 to 1000; 2 if not given"),
           option("--scale", "S", "0.125",
                  "of every width of the real model, 1/64 to 4; 0.125 if not given, 1 is real"),
           option("--seed", "N", "0", "of the weights; 0 if not given"),
           option("--shards", "N", "", "files to spread over; one for each 4 GB if not given"),
           threads_option(), flag("--overwrite", "replace the checkpoint that OUTPUT holds"),
           quiet("no progress, no summary")},
          R"(
Examples:
  nvfp4 sample tiny
  nvfp4 sample llama-8b --scale 1 --layers 32
  nvfp4 sample moe --arch deepseek-v3 --scale 0.125 --layers 3 --shards 4
)"};
}

bool has_name(std::string_view names, std::string_view name) {
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    if (names.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const CommandOption* Command::find(std::string_view option) const {
  const auto found = std::ranges::find_if(
      options, [&](const CommandOption& o) { return has_name(o.names, option); });
  return found == options.end() ? nullptr : &*found;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {quantize_command(), convert_command(), inspect_command(),
                                           compare_command(),  verify_command(),  repair_command(),
                                           sample_command(),   bench_command(),   tune_command(),
                                           selftest_command()};
  return all;
}

const Command& command(std::string_view name) {
  const auto& all = commands();
  const auto found = std::ranges::find(all, name, &Command::name);
  require<ValueError>(found != all.end(), "command = {}, there is none of that name", name);
  return *found;
}

}  // namespace nvfp4
