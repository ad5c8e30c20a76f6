#pragma once

#include "checkpoint/compare/shared_work.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/gemm.h"
#include "selftest/selftest.h"

/// The arguments of each command: the options of a function of the library and those that only a
/// command has, with their rows.
namespace nvfp4 {

/// The threads, and what is printed.
struct Printing {
  int threads = 0;
  bool json = false, quiet = false;
};
inline constexpr OptionRow<Printing> kThreads[] = {
    {.names = "--threads",
     .member = &Printing::threads,
     .value = "N",
     .text = "threads to use; all CPUs that this process may use if not given",
     .least = 1,
     .most = 4096,
     .python = false}};
inline constexpr OptionRow<Printing> kJson[] = {
    {.names = "--json",
     .member = &Printing::json,
     .text = "print everything as JSON, in place of the text",
     .python = false}};
inline constexpr OptionRow<Printing> kQuiet[] = {{.names = "-q,--quiet",
                                                  .member = &Printing::quiet,
                                                  .text = "no progress, no summary",
                                                  .python = false}};
inline constexpr OptionRow<RunOptions> kReport[] = {
    {.names = "--report",
     .member = &RunOptions::report,
     .value = "FILE",
     .text = "also write everything about each tensor to FILE, as JSON",
     .python = false}};

/// The number of lines of a list.
struct Top {
  std::uint64_t top = 3;
};
inline constexpr OptionRow<Top> kTop[] = {{.names = "--top",
                                           .member = &Top::top,
                                           .value = "N",
                                           .text = "how many lines of a kind to show",
                                           .most = 1e9,
                                           .python = false}};

/// The rank of this process, in words.
struct RankWords {
  std::optional<int> rank_word;
  std::string ranks_word = "1";
};
inline constexpr OptionRow<RankWords> kRanks[] = {
    {.names = "--rank",
     .member = &RankWords::rank_word,
     .value = "R",
     .text = "rank of this process, from 0: ranks share the work and a file system",
     .most = 1 << 20},
    {.names = "--ranks",
     .member = &RankWords::ranks_word,
     .value = "N",
     .text =
         "number of ranks; auto: rank and number as mpirun, srun or torchrun set them; 1 if not "
         "given"}};
/// Returns the rank. Throws OptionsError.
Rank rank_of(const RankWords& words);

/// The share of this process in a common report.
struct ShareWords : RankWords {
  std::filesystem::path parts;
};
inline constexpr OptionRow<ShareWords> kParts[] = {
    {.names = "--parts",
     .member = &ShareWords::parts,
     .value = "DIR",
     .text = "with --ranks: a folder that all ranks see. Each writes its results there, and the "
             "rank that finds the files of all makes the report"}};
/// Returns the share. Throws OptionsError.
SharedWork work_of(const ShareWords& words);

struct QuantizeArguments : QuantizeCheckpointOptions, Printing, RankWords {};
struct ConvertArguments : ConvertOptions, Printing {};
struct RepairArguments : RepairOptions, Printing, Top {};
struct VerifyArguments : VerifyOptions, Printing, ShareWords, Top {};
struct SampleArguments : SampleOptions, Printing {};

/// The rows of a tensor that inspect shows.
struct ShownBlocks {
  std::int64_t row = 0, blocks = 4;
};
inline constexpr OptionRow<ShownBlocks> kShownBlocks[] = {
    {.names = "--row",
     .member = &ShownBlocks::row,
     .value = "R",
     .text = "row of that tensor whose blocks are shown",
     .most = 0x1p48,
     .python = false},
    {.names = "--blocks",
     .member = &ShownBlocks::blocks,
     .value = "N",
     .text = "blocks of that row to show",
     .most = 1'000'000,
     .python = false}};
struct InspectArguments : InspectOptions, Printing, ShownBlocks {};

struct CompareOptions {
  std::filesystem::path a, b, html, against, run, statistics;
  std::uint64_t top = 12;
  std::function<void(const Progress&)> progress;
};
inline constexpr OptionRow<CompareOptions> kCompareOptions[] = {
    {.names = "A",
     .member = &CompareOptions::a,
     .text = "model folder, .safetensors or .gguf file with the original values",
     .model = true},
    {.names = "B",
     .member = &CompareOptions::b,
     .text = "the checkpoint to compare with A; NVFP4 is dequantized",
     .model = true},
    {.names = "--top",
     .member = &CompareOptions::top,
     .value = "N",
     .text = "how many tensors to list, worst first",
     .most = 1e9,
     .python = false},
    {.names = "--html",
     .member = &CompareOptions::html,
     .value = "FILE",
     .text = "also write an HTML page: errors by layer, worst tensors, codes and scales"},
    {.names = "--against",
     .member = &CompareOptions::against,
     .value = "C",
     .text = "for the page: another quantization of A, such as a vendor's, to compare with B",
     .model = true},
    {.names = "--run",
     .member = &CompareOptions::run,
     .value = "FILE",
     .text = "for the page: the --report of the run that wrote B. It has the output errors and the "
             "choice for each row of gptq, and the curve of error over bits of --bits and --size"},
    {.names = "--statistics",
     .member = &CompareOptions::statistics,
     .value = "FILE",
     .text = "for the page: a file of nvfp4 calibrate. The page then shows errors of outputs "
             "first, by Gram matrices if the file has them, and the tokens of each expert"}};
struct CompareArguments : CompareOptions, Printing, ShareWords {};

struct BenchOptions {
  Device device;
  std::string backend;
};
inline constexpr OptionRow<BenchOptions> kBenchOptions[] = {
    {.names = "--device",
     .member = &BenchOptions::device,
     .value = "NAME",
     .text = "cpu, the default; cuda or cuda:N, a GPU",
     .python = false},
    {.names = "--backend",
     .member = &BenchOptions::backend,
     .value = "NAME",
     .text = "kernels of the CPU: {choices}; the best that this machine runs if not given",
     .choices = option_rules::backends,
     .python = false},
};
struct BenchArguments : BenchOptions, Printing {};

/// The GEMM of tune in words.
struct TuneWords {
  std::string shape, form = "dense", epilogue = "none", x = "bfloat16", out = "bfloat16";
  std::vector<std::int64_t> rows = {1, 16, 64, 256};
  Device device = Device::cuda();
  int shown = 5;
};
inline std::vector<std::string> gemm_forms() {
  return {"dense", "grouped", "routed", "every_group"};
}
inline std::vector<std::string> gemm_epilogues() { return {"none", "swiglu", "swiglu_quantize"}; }
inline std::vector<std::string> x_types() { return {"bfloat16", "float16"}; }
inline std::vector<std::string> out_types() { return {"bfloat16", "float16", "float32"}; }
inline constexpr OptionRow<TuneWords> kTuneWords[] = {
    {.names = "--shape",
     .member = &TuneWords::shape,
     .value = "NxK",
     .text = "shape of the weights, such as 4096x7168",
     .python = false,
     .required = true},
    {.names = "--rows",
     .member = &TuneWords::rows,
     .value = "M,M,...",
     .text = "rows of the result; 1,16,64,256 if not given",
     .least = 1,
     .most = 0x1p31 - 256,
     .python = false},
    {.names = "--device",
     .member = &TuneWords::device,
     .value = "NAME",
     .text = "cuda, cuda:N or auto; cuda:0 if not given",
     .python = false},
    {.names = "--form",
     .member = &TuneWords::form,
     .value = "NAME",
     .text = "dense (the default), grouped, routed or every_group",
     .choices = gemm_forms,
     .python = false},
    {.names = "--epilogue",
     .member = &TuneWords::epilogue,
     .value = "NAME",
     .text = "none (the default), swiglu or swiglu_quantize",
     .choices = gemm_epilogues,
     .python = false},
    {.names = "--x",
     .member = &TuneWords::x,
     .value = "NAME",
     .text = "dtype of x: bfloat16 (the default) or float16",
     .choices = x_types,
     .python = false},
    {.names = "--out",
     .member = &TuneWords::out,
     .value = "NAME",
     .text = "dtype of the result: bfloat16 (the default), float16 or float32",
     .choices = out_types,
     .python = false},
    {.names = "--show",
     .member = &TuneWords::shown,
     .value = "N",
     .text = "how many kernels of each table to show",
     .least = 1,
     .most = 1000,
     .python = false},
};
inline constexpr OptionRow<GemmDescription> kTunedGemm[] = {
    {.names = "--groups",
     .member = &GemmDescription::groups,
     .value = "G",
     .text = "number of matrices [N, K]",
     .least = 1,
     .most = 1 << 20,
     .python = false},
    {.names = "--top-k",
     .member = &GemmDescription::top_k,
     .value = "N",
     .text = "routed: experts of each token",
     .most = 1 << 20,
     .python = false},
    {.names = "--shared-x",
     .member = &GemmDescription::shared_x,
     .text = "routed, every_group: one x for all experts of a token, or for all groups",
     .python = false},
    {.names = "--batch-invariant",
     .member = &GemmDescription::batch_invariant,
     .text = "only kernels whose order of summation does not depend on the rows",
     .python = false},
    {.names = "--workspace",
     .member = &GemmDescription::max_workspace_bytes,
     .value = "BYTES",
     .text = "memory that a plan may use for partial sums over K",
     .python = false},
};
/// The form, epilogue and dtypes of the description are in the words.
struct TuneArguments : GemmDescription, TuneWords {};

inline std::vector<std::string> selftest_names() { return selftest_checks(); }
inline constexpr OptionRow<SelftestOptions> kSelftestOptions[] = {
    {.names = "--device",
     .member = &SelftestOptions::device,
     .value = "NAME",
     .text = "check only cpu, cuda or cuda:N; the CPU and every GPU if not given",
     .python = false},
    {.names = "--no-rates",
     .member = &SelftestOptions::rates,
     .text = "compare only, measure no rates",
     .python = false},
    {.names = "--inject-fault",
     .member = &SelftestOptions::inject_fault,
     .value = "CHECK",
     .text = "flip one bit of each result of a check, to see that the selftest finds it: {choices}",
     .choices = selftest_names,
     .python = false},
};
struct SelftestFile {
  std::filesystem::path out;
};
inline constexpr OptionRow<SelftestFile> kSelftestFile[] = {
    {.names = "--out",
     .member = &SelftestFile::out,
     .value = "FILE",
     .text = "also write the report to FILE, to attach to an issue: text, then JSON; JSON alone if "
             "FILE ends in .json",
     .python = false},
};
struct SelftestArguments : SelftestOptions, SelftestFile, Printing {};

/// The arguments of a command that only the Python package runs.
struct ElsewhereArguments {};

/// The topic of help or a manual page, or a shell.
struct Topic {
  std::string topic;
};
inline std::vector<std::string> shells() { return {"bash", "zsh", "fish"}; }
inline constexpr OptionRow<Topic> kShell[] = {
    {.names = "SHELL", .member = &Topic::topic, .text = "bash, zsh or fish", .choices = shells},
};
inline constexpr OptionRow<Topic> kPage[] = {
    {.names = "[COMMAND]",
     .member = &Topic::topic,
     .text = "one of the commands; nvfp4's own page if not given"},
};
inline constexpr OptionRow<Topic> kTopic[] = {
    {.names = "[COMMAND]",
     .member = &Topic::topic,
     .text = "a command, a code of an error or of a finding, errors, or findings"},
};

/// The program's own flags.
struct ProgramFlags {
  bool version = false, verbose = false;
};
inline constexpr OptionRow<ProgramFlags> kProgramFlags[] = {
    {.names = "-v,--version", .member = &ProgramFlags::version, .text = "show the version"},
    {.names = "--verbose",
     .member = &ProgramFlags::verbose,
     .text = "with --version: also the instruction sets and GPUs of this build and machine"},
};

}  // namespace nvfp4
