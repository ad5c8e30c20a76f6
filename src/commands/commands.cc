#include "commands/commands.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "commands/builders.h"
#include "commands/machine_commands.h"
#include "commands/rank_options.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/quantize.h"

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

/// Returns --format with a text such as "modelopt (the default), compressed-tensors; comfyui: one
/// file in OUTPUT; ...".
CommandOption format() {
  std::string text;
  std::vector<std::string> names;
  for (const FormatInfo& f : output_formats()) {
    if (!text.empty()) text += f.note.empty() ? ", " : "; ";
    text += f.name;
    if (names.empty()) text += " (the default)";
    if (!f.note.empty()) text += ": " + f.note;
    if (!f.extension.empty()) text += ", the default if OUTPUT ends in " + f.extension;
    names.push_back(f.name);
  }
  return option("--format", "NAME", "", std::move(text), std::move(names));
}

/// Returns a text on the outputs of one file: "; gguf if not given and OUTPUT ends in .gguf".
std::string targets_by_name() {
  std::string text;
  for (const FormatInfo& f : output_formats())
    if (!f.extension.empty())
      text += fmt::format("; {} if not given and OUTPUT ends in {}", f.name, f.extension);
  return text;
}

CommandOption method(std::string text) {
  return option("--method", "NAME", "mse", std::move(text), quantizer_names());
}

CommandOption device() {
  return option("--device", "NAME", "cpu",
                "device that encodes the weights: cpu, the default; cuda or cuda:N, a GPU; auto, "
                "the first GPU if it can be used. The output has the same bytes");
}

CommandOption report() {
  return of_the_command(
      option("--report", "FILE", "", "also write everything about each tensor to FILE, as JSON"));
}

/// Returns the --report option.
CommandOption json_report() {
  return json("print everything about each tensor as JSON, in place of the summary");
}
CommandOption top(std::string fallback, std::string what) {
  std::string text = fmt::format("{}; {} if not given", what, fallback);
  return of_the_command(option("--top", "N", std::move(fallback), std::move(text)));
}

/// Returns --allow for commands that may write less than they read.
CommandOption allow(bool decode) {
  std::string text =
      "accept with a warning what is an error otherwise; drop: leave out tensors that the output "
      "format cannot hold (GGUF: multi-token prediction, KV cache scales); broken-scales: use "
      "weights whose scales or FP8 codes are NaN, infinite, negative or far too large";
  std::vector<std::string> names = {"drop", "broken-scales"};
  if (decode) {
    text +=
        "; decode: turn FP8 and MXFP4 weights that FORM cannot hold beside 4-bit weights into BF16";
    names.emplace_back("decode");
  }
  return repeatable(option("--allow", "LIST", "", std::move(text), std::move(names)));
}

/// Returns the options of commands that write a checkpoint.
Options run_flags() {
  return {flag("--resume", "continue an interrupted run, with the same options"),
          flag("--overwrite", "replace the model in OUTPUT"),
          flag("--dry-run",
               "report what would be done; write and download nothing; a model of the Hugging Face "
               "Hub must be on this disk as a whole, also for the run itself"),
          quiet("no progress, no summary")};
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
                     "model folder, one .safetensors or .gguf file, or a model in the Hugging Face "
                     "cache, "
                     "org/model or org/model@revision"),
            argument("OUTPUT", "folder to write, new or empty; or a .gguf file"),
            scheme("nvfp4",
                   "nvfp4: 4-bit weights and activations, the default; nvfp4a16: weights only"),
            format(),
            option("--method", "NAME", "",
                   "how block scales are chosen: max; four_over_six; mse, the default: least "
                   "squared error over all scales; weighted, the default with --statistics: mse "
                   "with each error times the mean square of its input channel; gptq: GPTQ, then "
                   "joint descent over scales and codes, with the Gram matrices of --statistics; "
                   "gptq:N: at most N sweeps of the descent, 4 if not given",
                   method_names()),
            option("--statistics,--imatrix", "FILE", "",
                   "what calibration measured of the layers' inputs: a file of "
                   "nvfp4-calibrate, or an importance matrix of llama.cpp in GGUF"),
            option("--recipe", "NAME|FILE", "",
                   fmt::format("which layers get which format: {}, or a YAML file of rules",
                               fmt::join(recipe_names(), ", "))),
            option("--bits", "B", "",
                   "choose layers to keep in FP8 or BF16, for an average of B bits per weight"),
            option("--size", "BYTES", "", "the same, for an output of BYTES, such as 24GiB"),
            repeatable(
                option("--merge", "FOLDER[=W]", "",
                       "LoRA adapter of PEFT to merge, with weight W, 1 if not given; repeatable")),
            repeatable(
                option("--ignore", "PATTERN", "",
                       "tensors to keep unquantized, besides those kept by default; repeatable")),
            repeatable(option("--include", "PATTERN", "",
                              "tensors to quantize although they are kept by default; repeatable")),
            repeatable(option("--fuse", "NAMES", "",
                              "modules that share one global scale, such as w1,w3; repeatable")),
            option("--input-amax", "FILE", "",
                   "JSON object that maps module names or patterns to the largest activation: a "
                   "name goes before patterns, then the first pattern that matches counts; 2688 if "
                   "none does"),
            threads_option(),
            device(),
            backend(),
            report(),
            rank_option("all ranks write one OUTPUT, on a shared file system"),
            ranks_option(),
            json_report()},
           {allow(false),
            flag("--keep-dtype",
                 "keep unquantized FP32 tensors in FP32; otherwise they become BF16, except router "
                 "biases and similar tensors")},
           run_flags()}),
      R"(
INPUT may hold BF16, FP16, FP32, FP8 and MXFP4 weights. NVFP4 weights keep their
codes and scales; --ignore dequantizes them. An output folder gets a model card:
README.md, or README-NVFP4.md beside the README.md of INPUT.

A pattern is an exact name, a glob (*, ?), or "re:" and a regular expression in
Perl's syntax, which is close to Python's. It must match the whole name of the
tensor or of its module.

Environment:
  NVFP4_BACKEND           backend if --backend is not given
  NVFP4_THREADS           threads if --threads is not given
  NO_COLOR                no colours, if set to anything
  HF_HUB_CACHE, HF_HOME   where models of the hub are kept

Examples:
  nvfp4 quantize meta-llama/Llama-3.1-8B Llama-3.1-8B-NVFP4 --device auto
  nvfp4 quantize Llama-3.1-8B out --scheme nvfp4a16 --recipe mlp
  nvfp4 quantize DeepSeek-V3 out --ignore 're:.*self_attn.*' --report out.json
)"};
}

Command convert_command() {
  const std::vector<std::string> targets = conversion_targets();
  CommandOption to =
      option("--to", "FORM", "", fmt::format("{}{}", fmt::join(targets, ", "), targets_by_name()),
             targets);
  return {
      "convert", "convert", "Convert a quantized checkpoint to another format",
      joined(
          {{argument(
                "INPUT",
                "model folder, .safetensors or .gguf file, in NVFP4 of any format, MXFP4 or FP8"),
            argument("OUTPUT", "folder to write, new or empty; --to gguf: a .gguf file"),
            std::move(to),
            scheme("",
                   "nvfp4 (W4A4) or nvfp4a16 (weights only); as in the input if not "
                   "given"),
            method("how block scales of FP8 weights are chosen: max, four_over_six, or "
                   "mse, the default"),
            option("--input-amax", "FILE", "",
                   "for FP8 and MXFP4 weights: JSON object that maps module names or patterns to "
                   "the largest activation; 2688 if not given"),
            threads_option(), device(), backend(), report(), json_report()},
           {allow(true)},
           run_flags()}),
      R"(
NVFP4 weights are not rounded again: codes and scales keep their values, and a
conversion back gives the same tensors. MXFP4 weights keep their values.

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
      "Show the tensors, scales and codes of a checkpoint",
      {argument("PATH", "model folder, or one .safetensors or .gguf file"),
       option("--tensor", "NAME", "", "show only this tensor, with its first blocks"),
       of_the_command(
           option("--row", "R", "0", "row of that tensor whose blocks are shown; 0 if not given")),
       of_the_command(option("--blocks", "N", "4", "blocks of that row to show; 4 if not given")),
       json("print everything about each tensor as JSON"),
       in_python(
           "histograms",  // Python has the opposite sense
           flag("--no-histogram",
                "read headers only: fast, but without ranges of scales and histograms of codes")),
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
      "compare", "compare", "Measure the error between the tensors of two checkpoints",
      joined(
          {{argument("A", "model folder, .safetensors or .gguf file with the original values"),
            argument("B", "the checkpoint to compare with A; NVFP4 is dequantized"),
            top("12", "how many tensors to list, worst first"), json("print everything as JSON"),
            option("--html", "FILE", "",
                   "also write an HTML page: errors by layer, worst tensors, codes and scales"),
            option("--against", "C", "",
                   "for the page: another quantization of A, such as a vendor's, to show beside B"),
            option("--run", "FILE", "",
                   "for the page: the --report of the run that wrote B. It has the output errors "
                   "and the choice for each row of gptq, and the curve of error over bits of "
                   "--bits and --size"),
            option("--statistics", "FILE", "",
                   "for the page: the statistics of calibration, for the tokens of each expert")},
           shared_work_options(),
           {threads_option(), quiet("no progress")}}),
      R"(
Relative error is |a - b| / |a| (L2), SQNR is 20 log10 of its inverse. Tensors
with the largest norms dominate the error of all tensors together; beside it are
the median of the tensors and the worst tensor. Exit status: 0 compared; 3 A or
B is incomplete, or they have no tensor in common.

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
  std::string text = fmt::format("judge for one loader: {}; for all of them if not given",
                                 fmt::join(loaders, ", "));
  return {
      "verify", "verify", "Find faults of a quantized checkpoint before a loader meets them",
      joined({{argument("PATH", "model folder, or one .safetensors or .gguf file"),
               option("--source", "DIR", "",
                      "the original checkpoint; every weight is compared with it"),
               in_python("loader",  // "for" is a word of Python
                         option("--for", "LOADER", "", std::move(text), std::move(loaders))),
               flag("--full",
                    "compare every byte with the hashes in nvfp4.files.json, which nvfp4 "
                    "writes beside a model"),
               top("3", "how many findings of a kind to show"), json("print everything as JSON")},
              shared_work_options(),
              {threads_option(), quiet("no progress")}}),
      R"(
docs/verify.md explains every code. Exit status: 0 there is no fault (there may
be warnings); 3 the files have faults, nothing is quantized, or no known loader
of this format reads them; with --for: that loader refuses or misreads them.

Examples:
  nvfp4 verify Llama-3.1-8B-NVFP4
  nvfp4 verify out --source Llama-3.1-8B
  nvfp4 verify model.gguf
  nvfp4 verify out --for tensorrt-llm --json | jq '.findings[].code'
)"};
}

Command repair_command() {
  return {
      "repair", "repair", "Write a faulty checkpoint again, with its faults corrected",
      joined(
          {{argument("PATH", "model folder"), argument("OUTPUT", "folder to write; new or empty"),
            option("--source", "DIR", "",
                   "the original checkpoint: weights that cannot be corrected otherwise are "
                   "quantized again from it"),
            option("--scales", "ORDER", "linear",
                   "layout of the block scales in PATH: linear, the default, or swizzled",
                   {"linear", "swizzled"}),
            option("--nibbles", "ORDER", "low",
                   "which nibble holds the even column: low, the default, or high",
                   {"low", "high"}),
            option("--input-amax", "FILE", "",
                   "for missing input scales: JSON object that maps module names or "
                   "patterns to the largest activation"),
            method("how block scales of weights that are quantized again are chosen: max, "
                   "four_over_six, or mse, the default"),
            threads_option(), device(), backend(), top("3", "how many changes of a kind to show"),
            json("print everything as JSON")},
           run_flags()}),
      R"(
PATH is never changed. The summary says what was done to each tensor and how
large the error is; --json has all of it. Exit status: 3 OUTPUT has faults.

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
                  "factor of every width of the real model, 1/64 to 4; 0.125 if not given"),
           option("--seed", "N", "0", "seed of the random weights; 0 if not given"),
           option("--shards", "N", "", "number of files; one for each 4 GB if not given"),
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
