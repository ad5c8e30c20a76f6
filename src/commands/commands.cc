#include "commands/commands.h"

#include <algorithm>

#include "checkpoint/base/error_codes.h"
#include "commands/arguments.h"
#include "commands/make_command.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

constexpr const char* kQuantizeNotes = R"(
INPUT may hold BF16, FP16, FP32, FP8, MXFP4, INT8 and INT4 weights. NVFP4
weights keep their codes and scales; --ignore dequantizes them. An output folder
gets a model card: README.md, or README-NVFP4.md beside the README.md of INPUT.

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
  nvfp4 quantize Llama-3.1-8B out --scheme w4a16 --recipe mlp
  nvfp4 quantize DeepSeek-V3 out --ignore 're:.*self_attn.*' --report out.json
)";

constexpr const char* kConvertNotes = R"(
NVFP4 weights are not rounded again, except by --allow round: codes and scales
keep their values, and a conversion back gives the same tensors. MXFP4 weights
keep their values. Weights that a GGUF file cannot hold become BF16 or Q8_0
(--rest), and the summary says so.

Examples:
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to compressed-tensors
  nvfp4 convert gpt-oss-20b out --to modelopt
  nvfp4 convert DeepSeek-V3 out --to modelopt
  nvfp4 convert Llama-3.1-8B-NVFP4 out --to bf16
  nvfp4 convert Llama-3.1-8B-NVFP4 llama.gguf --to gguf   # for llama.cpp
  nvfp4 convert llama.gguf out --to modelopt
)";

constexpr const char* kInspectNotes = R"(
All scales are shown as multipliers: x = element * block scale * global scale.

Examples:
  nvfp4 inspect Llama-3.1-8B-NVFP4
  nvfp4 inspect out --tensor model.layers.0.self_attn.q_proj.weight
  nvfp4 inspect out --tensor model.layers.0.mlp.up_proj --row 7 --blocks 2
  nvfp4 inspect out --json | jq '.tensors[].global_scale'
)";

constexpr const char* kCompareNotes = R"(
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
)";

constexpr const char* kCalibrateNotes = R"(
A command of the Python package: pip install '.[transformers]' in a clone. Its
nvfp4 calibrate --help lists the options; docs/calibration.md explains them.

Examples:
  nvfp4 calibrate MODEL --text TEXT --out stats.safetensors
  nvfp4 calibrate MODEL --text TEXT --quantize OUTPUT --method gptq
)";

constexpr const char* kEvaluateNotes = R"(
A command of the Python package: pip install '.[transformers]' in a clone. Its
nvfp4 evaluate --help lists the options.

Example:
  nvfp4 evaluate Llama-3.1-8B-NVFP4 --against Llama-3.1-8B --text TEXT
)";

constexpr const char* kVerifyNotes = R"(
nvfp4 help findings lists all codes. Exit status: 0 no fault, perhaps warnings;
3 the files have faults, or nothing is quantized. With --for: 0 the loader reads
them; 3 it refuses or misreads them; 4 unknown.

Examples:
  nvfp4 verify Llama-3.1-8B-NVFP4
  nvfp4 verify out --source Llama-3.1-8B
  nvfp4 verify model.gguf
  nvfp4 verify out --for tensorrt-llm --json | jq '.findings[].code'
)";

constexpr const char* kRepairNotes = R"(
PATH is never changed. The summary says what was done to each tensor and how
large the error is; --json has all of it. Exit status: 3 OUTPUT has faults.

Examples:
  nvfp4 repair Llama-3.1-8B-NVFP4 out
  nvfp4 repair broken out --source Llama-3.1-8B
)";

constexpr const char* kSampleNotes = R"(
Examples:
  nvfp4 sample tiny
  nvfp4 sample llama-8b --scale 1 --layers 32
  nvfp4 sample moe --arch deepseek-v3 --scale 0.125 --layers 3 --shards 4
)";

constexpr const char* kBenchNotes = R"(
The matrices are far larger than the caches. Each figure is the best of several
runs, as in the report of selftest, which checks that the results are right.

Example:
  nvfp4 bench
)";

constexpr const char* kTuneNotes = R"(
The fastest kernel of each GEMM is kept in the file that NVFP4_TUNE_CACHE names,
else in nvfp4/gemm.txt below XDG_CACHE_HOME or ~/.cache, for this GPU, driver
and library. Only plans with autotune read it. "of chosen" is the time relative
to the kernel of a plan without autotune. W4A4 decodes x first; its GEMM is the
same.

Examples:
  nvfp4 tune --shape 4096x7168
  nvfp4 tune --shape 5120x2880 --rows 1,8,32 --x float16 --device cuda:1
  nvfp4 tune --shape 4096x7168 --form grouped --groups 256 --rows 1024
)";

constexpr const char* kSelftestNotes = R"(
Conversions, quantizers and layouts must give the bits of the reference, for
every instruction set of the CPU and on every GPU; the reference must give those
of tables and checksums. GEMM of whole numbers must be exact, other GEMM within
a bound. On a GPU every kernel of each architecture that runs there is checked.
Rates are shown beside the limits of the machine's memory and tensor cores.

Exit status: 0 all results are right, 3 some are wrong, 1 the device cannot be
used or FILE cannot be written.

Examples:
  nvfp4 selftest --out report.txt
  nvfp4 selftest --device cpu --no-rates
  nvfp4 selftest --inject-fault w4a16 --no-rates   # must fail
)";

constexpr const char* kCompletionsNotes = R"(
Examples:
  nvfp4 completions bash > ~/.local/share/bash-completion/completions/nvfp4
  nvfp4 completions zsh > ~/.zfunc/_nvfp4       # with fpath+=~/.zfunc
  nvfp4 completions fish > ~/.config/fish/completions/nvfp4.fish
)";

constexpr const char* kManNotes = R"(
Examples:
  nvfp4 man quantize | man -l -
  nvfp4 man > nvfp4.1
)";

constexpr const char* kHelpNotes = R"(
Examples:
  nvfp4 help quantize
  nvfp4 help NV0102
  nvfp4 help findings
)";

constexpr const char* kProgramNotes = R"(
Environment:
  NVFP4_BACKEND           backend if --backend is not given
  NVFP4_THREADS           threads if --threads is not given
  NVFP4_TUNE_CACHE        file with the measurements of nvfp4 tune
  NO_COLOR                no colours, if set to anything

Example, with a small synthetic model:
  nvfp4 sample tiny
  nvfp4 quantize tiny tiny-nvfp4
  nvfp4 compare tiny tiny-nvfp4

Exit status: 0 done; 1 an input or output failed; 2 wrong usage; 3 verify found
a fault, the output of repair still has one, compare had an incomplete
checkpoint or no common tensor, or selftest found a wrong result; 4 verify --for
does not know whether the loader reads the checkpoint.
)";

/// Calls `make`. Its errors are those of --ranks.
template <class Make>
auto of_ranks(Make&& make) try {
  return make();
} catch (const ValueError& e) {
  OptionsError error(e.what(), e.code);
  error.option = "ranks";
  throw error;
}

}  // namespace

std::string_view kind_name(OptionKind kind) {
  constexpr std::string_view kNames[] = {"flag", "integer", "number", "size",
                                         "word", "path",    "list"};
  return kNames[static_cast<std::size_t>(kind)];
}

Rank rank_of(const RankWords& words) {
  return of_ranks([&] { return rank_from_text(words.rank_word, words.ranks_word); });
}

SharedWork work_of(const ShareWords& words) {
  const Rank rank = rank_of(words);
  return {rank.rank, rank.ranks, words.parts};
}

const CommandOption* Command::find(std::string_view option) const {
  const auto found = std::ranges::find_if(options, [&](const CommandOption& o) {
    return std::ranges::count(options::split(o.names), option) != 0;
  });
  return found == options.end() ? nullptr : &*found;
}

const CommandOption* Command::find_keyword(std::string_view keyword) const {
  const auto found = std::ranges::find(options, keyword, &CommandOption::keyword);
  return found == options.end() ? nullptr : &*found;
}

std::string Command::place_of_former(std::string_view name) const {
  for (const CommandOption& option : options)
    for (const std::string& former : options::split(option.former)) {
      const std::size_t space = std::min(former.find(' '), former.size());
      if (former.substr(0, space) == name) return option.name() + former.substr(space);
    }
  return {};
}

const Command& program() {
  static const Command about = make_command<ProgramFlags>(
      {.summary = "Quantizes Hugging Face checkpoints to NVFP4 (4-bit floating point with block "
                  "scales), on any CPU.",
       .notes = kProgramNotes},
      kProgramFlags);
  return about;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      make_command<QuantizeArguments>(
          {"quantize", "quantize_checkpoint", "Quantize a checkpoint to NVFP4", kQuantizeNotes},
          kQuantizeOptions, kThreads, kRunOptions, kReport, kRanks, kJson, kQuiet),
      make_command<ConvertArguments>(
          {"convert", "convert", "Convert a quantized checkpoint to another format", kConvertNotes},
          kConvertOptions, kThreads, kRunOptions, kReport, kJson, kQuiet),
      make_command<InspectArguments>(
          {"inspect", "inspect", "Show the tensors, scales and codes of a checkpoint",
           kInspectNotes},
          kInspectOptions, kShownBlocks, kThreads, kJson, kQuiet),
      make_command<CompareArguments>(
          {"compare", "compare", "Measure the error between the tensors of two checkpoints",
           kCompareNotes},
          kCompareOptions, kRanks, kParts, kThreads, kJson, kQuiet),
      make_command<VerifyArguments>(
          {"verify", "verify", "Find faults of a quantized checkpoint before a loader meets them",
           kVerifyNotes},
          kVerifyOptions, kTop, kRanks, kParts, kThreads, kJson, kQuiet),
      make_command<RepairArguments>(
          {"repair", "repair", "Write a faulty checkpoint again, with its faults corrected",
           kRepairNotes},
          kRepairOptions, kTop, kThreads, kRunOptions, kJson, kQuiet),
      make_command<ElsewhereArguments>(
          {"calibrate", "", "Run a model on text and write statistics for quantize --statistics",
           kCalibrateNotes}),
      make_command<ElsewhereArguments>(
          {"evaluate", "", "Measure what quantizing cost a model on a text", kEvaluateNotes}),
      make_command<SampleArguments>(
          {"sample", "sample", "Make a synthetic BF16 checkpoint with real names and shapes",
           kSampleNotes},
          kSampleOptions, kThreads, kQuiet),
      make_command<BenchArguments>(
          {"bench", "", "Measure this machine against its own memory bandwidth", kBenchNotes},
          kBenchOptions, kThreads),
      make_command<TuneArguments>(
          {"tune", "", "Measure the kernels of a GEMM on a GPU and keep the fastest", kTuneNotes},
          kTuneWords, kTunedGemm),
      make_command<SelftestArguments>(
          {"selftest", "", "Check the kernels on this machine against the reference",
           kSelftestNotes},
          kSelftestOptions, kSelftestFile, kThreads, kJson, kQuiet),
      make_command<Topic>(
          {"completions", "", "Write what bash, zsh or fish need to complete commands and options",
           kCompletionsNotes},
          kShell),
      make_command<Topic>({"man", "", "Write the manual page of a command", kManNotes}, kPage),
      make_command<Topic>({"help", "", "Show the help of a command", kHelpNotes}, kTopic),
  };
  return all;
}

const Command& command(std::string_view name) {
  const auto& all = commands();
  const auto found = std::ranges::find(all, name, &Command::name);
  require<ValueError>(found != all.end(), "command = {}, there is none of that name", name);
  return *found;
}

}  // namespace nvfp4
