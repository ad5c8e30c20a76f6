#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/checkpoint/option_row.h"
#include "nvfp4/quantize.h"

/// The options of the functions on checkpoints. A row of a table describes each option for all who
/// show or set it. Comments at the members add what callers in C++ need.
namespace nvfp4 {

/// The progress of a run.
struct Progress {
  std::string tensor;  ///< tensor of the last completed part; "" before the first
  std::int64_t tensors_done = 0, tensors_total = 0;
  std::uint64_t bytes_done = 0, bytes_total = 0;  ///< bytes of the input
};

/// Losses and faults that a run accepts, with a warning. Otherwise they are errors.
struct Allowed {
  bool drop = false;
  /// Weights that verify_checkpoint() reports as broken are used as they are: scales that are NaN,
  /// infinite, negative, far too large or in the wrong sense, and FP8 codes that are NaN.
  bool broken_scales = false;
  bool decode = false, round = false;
};

/// Throws ValueError unless `pattern` is valid for `ignore` and `include`.
void check_pattern(const std::string& pattern);

/// The choices of options, with notes as OptionRow::choices says, and checks of words.
namespace option_rules {
std::vector<std::string> backends(), formats(), loaders(), methods(), quantizers(), recipes(),
    schemes(), targets(), losses_of_convert();
void check_fuse(const std::string& names);
void check_method(const std::string& text);
inline std::vector<std::string> asked_loaders() {
  return {"transformers", "transformers+nvfp4", "diffusers"};
}
inline std::vector<std::string> losses() { return {"drop", "broken-scales"}; }
inline std::vector<std::string> rests() {
  return {"bf16: the default", "q8_0: half the size, more error"};
}
inline std::vector<std::string> layouts() { return {"linear", "swizzled"}; }
inline std::vector<std::string> nibbles() { return {"low", "high"}; }
inline std::vector<std::string> architectures() { return {"llama", "deepseek-v3"}; }
}  // namespace option_rules

/// The common options of quantize_checkpoint(), convert_checkpoint() and repair_checkpoint().
struct RunOptions {
  std::filesystem::path input, output;
  /// The method for tensors with new block scales: one of method_names(), or "gptq:N" for at most N
  /// sweeps of the descent. Empty: "weighted" with statistics, else "mse". Only
  /// quantize_checkpoint() takes methods that need statistics.
  std::string method{};
  /// It applies to weights without an input scale. Modules that share a scale get the largest amax
  /// of them. An expert without amax gets the largest of the same projections of the layer's other
  /// experts. Other weights get 2688 (input_scale 1).
  std::optional<std::filesystem::path> input_amax{};
  /// `resume` continues an interrupted run with the same options and input. If `output` is complete
  /// and has these options and input, nothing is done; if it is missing or empty, the run starts.
  /// `overwrite` removes the files of `output` that its nvfp4.files.json lists. Others stay, and
  /// one that a loader would read is an IoError. Without both, `output` must be missing or empty.
  bool resume = false, overwrite = false, dry_run = false;
  std::string backend{};         ///< backend of the CPU
  Device device{};               ///< device of the encoder; the output is the same on each
  bool wait_for_device = false;  ///< if false, the CPU encodes until the device has started
  /// If true, the device is released while the CPU encodes the last rows. All that this process has
  /// on the device is lost, and the process cannot use the device again. It is for a process that
  /// does nothing else and would otherwise wait for the release at its end.
  bool release_device = false;
  std::function<void(const Progress&)> progress{};  ///< called from any thread, one at a time
  /// A file that the caller writes after the run: it must be apart from all that the run uses.
  std::filesystem::path report{};
};

inline constexpr OptionRow<RunOptions> kRunOptions[] = {
    {.names = "--device",
     .member = &RunOptions::device,
     .value = "NAME",
     .text = "device that encodes the weights: cpu, the default; cuda or cuda:N, a GPU; auto, the "
             "first GPU if it can be used. The output has the same bytes"},
    {.names = "--backend",
     .member = &RunOptions::backend,
     .value = "NAME",
     .text = "kernels of the CPU: {choices}; the best that this machine runs if not given",
     .choices = option_rules::backends},
    {.names = "--resume",
     .member = &RunOptions::resume,
     .text = "continue an interrupted run, with the same options"},
    {.names = "--overwrite",
     .member = &RunOptions::overwrite,
     .text = "replace the model in OUTPUT"},
    {.names = "--dry-run",
     .member = &RunOptions::dry_run,
     .text = "report what would be done; write and download nothing; a model of the Hugging Face "
             "Hub must be on this disk as a whole, also for the run itself"},
};

/// The options of quantize_checkpoint().
struct QuantizeCheckpointOptions : RunOptions {
  Scheme scheme = Scheme::w4a4;
  std::string format;  ///< one of output_formats(); "": default_format() of the output
  /// Patterns of tensors or modules: an exact name, a glob (`*`, `?`), or "re:" and a regular
  /// expression. The syntax is Perl's, which is close to Python's `re`. A pattern must match the
  /// whole name. Throws ValueError for an invalid expression, or one that takes more than a million
  /// steps on a name.
  ///
  /// `ignore` has priority over `include`, and `include` over the defaults. A tensor can be
  /// quantized only if it is 2-D (or stacked experts) and has K % 16 == 0. Its type must be BF16,
  /// F16, F32, FP8 or MXFP4. FP8 and MXFP4 weights that are not quantized are dequantized to BF16.
  /// NVFP4 weights keep their codes, scales and input scale regardless of the defaults; `ignore`
  /// dequantizes them to BF16.
  ///
  /// There is one exception: loaders fuse an NVFP4 weight with one that is quantized now. If that
  /// one needs a larger global scale, both get it, and the block scales of the NVFP4 weight are
  /// rounded, with a warning. Such weights also get the largest of their input scales.
  /// An expert layer is quantized as a whole or not at all.
  std::vector<std::string> ignore, include;
  std::vector<std::string> fuse;
  /// One of recipe_names(), or a YAML file as in docs/recipes.md. `ignore` and `include` have
  /// priority over it. Its scheme, if it has one, replaces `scheme`.
  std::optional<std::filesystem::path> recipe;
  /// A budget: some layers stay in FP8 or BF16 so that the summed output error is minimal. `bits`
  /// is the average number of bits per weight, scales included, over the weights that are quantized
  /// without a recipe. `size` is the largest size of the output in bytes. The input is read two
  /// more times. Only one of `bits`, `size` and `recipe` can be given. The choice is in the report
  /// and the model card, as a recipe.
  std::optional<double> bits;
  std::optional<std::uint64_t> size;
  /// The least share of the multiplications of a forward pass in W4A4 layers. Other layers become
  /// W4A16, by the sensitivities of `statistics`. It can be given with `bits` or `size`.
  std::optional<double> w4a4;
  /// Reports whether the layers' formats are chosen by a budget.
  bool has_budget() const { return bits || size || w4a4; }
  /// A weight that is not in the file is quantized by mse, with a warning. The file's amaxes are
  /// used if `input_amax` and the input have none.
  std::optional<std::filesystem::path> statistics;
  /// Adapters are added in FP32 while the model is read. Weights with an adapter that are not
  /// quantized become BF16. Throws UnsupportedError for all but plain and rank-stabilized LoRA
  /// (DoRA, biases, fully trained modules, embeddings).
  std::vector<std::string> merge;
  Allowed allow;  ///< `drop` and `broken_scales`
  /// If true, the unquantized tensors of an FP32 model stay FP32. Otherwise they become BF16, and
  /// config.json says so. Router biases, parameters of state spaces and the tensors that
  /// transformers keeps in FP32 always stay FP32. The option has no effect on other models and on
  /// formats with one file.
  bool keep_dtype = false;
  /// The rank of this process and the number of processes that write one folder on a common file
  /// system. Each writes whole shards of about the same total size. The last process to end writes
  /// index and configuration. The bytes are those of a single process. A process that died is run
  /// again with the same options; `resume` is not needed, and `overwrite` is a ValueError. Formats
  /// with one file are an UnsupportedError.
  int rank = 0, ranks = 1;
};

/// Rows with Effect::values are in the order of the metadata.
inline constexpr OptionRow<QuantizeCheckpointOptions> kQuantizeOptions[] = {
    {.names = "INPUT",
     .member = &QuantizeCheckpointOptions::input,
     .text = "model folder, one .safetensors or .gguf file, or a model in the Hugging Face cache, "
             "org/model or org/model@revision",
     .model = true},
    {.names = "OUTPUT",
     .member = &QuantizeCheckpointOptions::output,
     .text = "folder to write, new or empty; or a .gguf file"},
    {.names = "--scheme",
     .member = &QuantizeCheckpointOptions::scheme,
     .value = "NAME",
     .text = "{choices}; w4a4 if not given",
     .effect = Effect::form,
     .choices = option_rules::schemes},
    {.names = "--format",
     .member = &QuantizeCheckpointOptions::format,
     .value = "NAME",
     .text = "{choices}",
     .effect = Effect::form,
     .choices = option_rules::formats},
    {.names = "--method",
     .member = &QuantizeCheckpointOptions::method,
     .value = "NAME[:N]",
     .text = "how block scales are chosen: max; four_over_six; mse, the default: least squared "
             "error over all scales; weighted, the default with --statistics: mse with each error "
             "times the mean square of its input channel; gptq: GPTQ, then joint descent over "
             "scales and codes, with the Gram matrices of --statistics; gptq:N: at most N sweeps "
             "of the descent, 4 if not given",
     .effect = Effect::values,
     .choices = option_rules::methods,
     .check = option_rules::check_method,
     .former = "--quantizer,--scale-search,--sweeps gptq:N"},
    {.names = "--ignore",
     .member = &QuantizeCheckpointOptions::ignore,
     .value = "PATTERN",
     .text = "tensors to exclude, besides those that are excluded by default; repeatable",
     .effect = Effect::values,
     .check = check_pattern},
    {.names = "--include",
     .member = &QuantizeCheckpointOptions::include,
     .value = "PATTERN",
     .text = "tensors to quantize although they are excluded by default; repeatable",
     .effect = Effect::values,
     .check = check_pattern},
    {.names = "--fuse",
     .member = &QuantizeCheckpointOptions::fuse,
     .value = "NAMES",
     .text = "modules that share one global scale, by the last components of their names, such as "
             "w1,w3; repeatable",
     .effect = Effect::values,
     .check = option_rules::check_fuse},
    {.names = "--recipe",
     .member = &QuantizeCheckpointOptions::recipe,
     .value = "NAME|FILE",
     .text = "which layers get which format: {choices}, or a YAML file of rules",
     .effect = Effect::values,
     .choices = option_rules::recipes},
    {.names = "--bits",
     .member = &QuantizeCheckpointOptions::bits,
     .value = "B",
     .text = "choose layers for FP8 or BF16, for an average of B bits per weight",
     .effect = Effect::form,
     .least = 4.5,
     .most = 16},
    {.names = "--size",
     .member = &QuantizeCheckpointOptions::size,
     .value = "BYTES",
     .text = "the same, for an output of BYTES, such as 24GiB",
     .effect = Effect::form},
    {.names = "--w4a4",
     .member = &QuantizeCheckpointOptions::w4a4,
     .value = "SHARE",
     .text = "choose layers for W4A16, so that W4A4 layers have SHARE of the multiplications, from "
             "0 to 1; by the sensitivities of --statistics",
     .effect = Effect::form,
     .most = 1},
    {.names = "--input-amax",
     .member = &QuantizeCheckpointOptions::input_amax,
     .value = "FILE",
     .text = "JSON object that maps module names or patterns to the largest activation: a name "
             "goes before patterns, then the first pattern that matches counts; 2688 if none does",
     .effect = Effect::values},
    {.names = "--statistics,--imatrix",
     .member = &QuantizeCheckpointOptions::statistics,
     .value = "FILE",
     .text = "what calibration measured of the layers' inputs: a file of nvfp4 calibrate, or an "
             "importance matrix of llama.cpp in GGUF",
     .effect = Effect::values},
    {.names = "--merge",
     .member = &QuantizeCheckpointOptions::merge,
     .value = "FOLDER[=W]",
     .text = "LoRA adapter of PEFT to merge, with weight W, 1 if not given; repeatable",
     .effect = Effect::values},
    {.names = "--allow",
     .member = &QuantizeCheckpointOptions::allow,
     .value = "LIST",
     .text = "accept with a warning what is an error otherwise; drop: leave out tensors that the "
             "output format cannot hold (GGUF: multi-token prediction, KV cache scales); "
             "broken-scales: use weights whose scales or FP8 codes are NaN, infinite, negative or "
             "far too large",
     .effect = Effect::allowed,
     .choices = option_rules::losses,
     .former = "--drop drop,--force broken-scales"},
    {.names = "--keep-dtype",
     .member = &QuantizeCheckpointOptions::keep_dtype,
     .text = "unquantized FP32 tensors stay FP32; otherwise they become BF16, except router "
             "biases and similar tensors",
     .effect = Effect::form},
};

/// The options of convert_checkpoint(). `input_amax` is for FP8 and MXFP4 weights, which get new
/// scales; `method` is for FP8 weights.
struct ConvertOptions : RunOptions {
  std::string to;  ///< one of conversion_targets(); "": the format of an output ".gguf"
  /// The scheme of the output. By default it is that of the input's NVFP4 weights, else W4A4.
  std::optional<Scheme> scheme;
  std::string rest{};  ///< "": "bf16"
  Allowed allow;
};

inline constexpr OptionRow<ConvertOptions> kConvertOptions[] = {
    {.names = "INPUT",
     .member = &ConvertOptions::input,
     .text =
         "model folder, .safetensors or .gguf file, in any NVFP4 format, MXFP4, FP8, INT8, INT4",
     .model = true},
    {.names = "OUTPUT",
     .member = &ConvertOptions::output,
     .text = "folder to write, new or empty; --to gguf: a .gguf file"},
    {.names = "--to",
     .member = &ConvertOptions::to,
     .value = "FORM",
     .text = "{choices}",
     .choices = option_rules::targets},
    {.names = "--scheme",
     .member = &ConvertOptions::scheme,
     .value = "NAME",
     .text = "{choices}; as in the input if not given",
     .choices = option_rules::schemes},
    {.names = "--method",
     .member = &ConvertOptions::method,
     .value = "NAME",
     .text = "how block scales of FP8 weights are chosen: max, four_over_six, or mse, the default",
     .choices = option_rules::quantizers,
     .former = "--quantizer,--scale-search"},
    {.names = "--input-amax",
     .member = &ConvertOptions::input_amax,
     .value = "FILE",
     .text = "for FP8 and MXFP4 weights: JSON object that maps module names or patterns to the "
             "largest activation; 2688 if not given"},
    {.names = "--rest",
     .member = &ConvertOptions::rest,
     .value = "TYPE",
     .text = "type of weights in a GGUF file that are quantized in INPUT, and cannot stay or "
             "become NVFP4; {choices}",
     .choices = option_rules::rests},
    {.names = "--allow",
     .member = &ConvertOptions::allow,
     .value = "LIST",
     .text = "accept with a warning what is an error otherwise; drop: leave out tensors that the "
             "output format cannot hold (GGUF: multi-token prediction, KV cache scales); "
             "broken-scales: use weights whose scales or FP8 codes are NaN, infinite, negative or "
             "far too large; decode: turn FP8 and MXFP4 weights that FORM cannot hold beside 4-bit "
             "weights into BF16; round: quantize 4-bit weights again for MLX, which has no global "
             "scale",
     .choices = option_rules::losses_of_convert,
     .former = "--drop drop,--force broken-scales,--decode decode"},
};

/// The options of repair_checkpoint(). `input_amax` is for weights without an input scale,
/// `method` for weights that are quantized again.
struct RepairOptions : RunOptions {
  std::optional<std::filesystem::path> source;
  /// `scales_swizzled`: all block scales are in 128x4 tiles and become linear. `high_nibble_first`:
  /// all even columns are in the high nibble and are swapped. If false, this is done only where the
  /// sizes or the source show that it is needed.
  bool scales_swizzled = false, high_nibble_first = false;
};

inline constexpr OptionRow<RepairOptions> kRepairOptions[] = {
    {.names = "PATH", .member = &RepairOptions::input, .text = "model folder", .model = true},
    {.names = "OUTPUT", .member = &RepairOptions::output, .text = "folder to write; new or empty"},
    {.names = "--source",
     .member = &RepairOptions::source,
     .value = "DIR",
     .text = "the original checkpoint: weights that cannot be corrected otherwise are quantized "
             "again from it",
     .model = true},
    {.names = "--scales",
     .member = &RepairOptions::scales_swizzled,
     .value = "ORDER",
     .text = "layout of the block scales in PATH: linear, the default, or swizzled",
     .choices = option_rules::layouts},
    {.names = "--nibbles",
     .member = &RepairOptions::high_nibble_first,
     .value = "ORDER",
     .text = "which nibble holds the even column: low, the default, or high",
     .choices = option_rules::nibbles},
    {.names = "--input-amax",
     .member = &RepairOptions::input_amax,
     .value = "FILE",
     .text = "for missing input scales: JSON object that maps module names or patterns to the "
             "largest activation"},
    {.names = "--method",
     .member = &RepairOptions::method,
     .value = "NAME",
     .text = "how block scales of weights that are quantized again are chosen: max, four_over_six, "
             "or mse, the default",
     .choices = option_rules::quantizers,
     .former = "--quantizer,--scale-search"},
};

/// The options of verify_checkpoint().
struct VerifyOptions {
  std::filesystem::path path;
  std::optional<std::filesystem::path> source;
  std::string loader;  ///< "": faults of the files, and each loader's verdict
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
  bool full = false;
  std::optional<int> tensor_parallel{};
  std::vector<std::string> asked{};  ///< loaders whose answers the caller brings
  /// Verdicts from loaders themselves, as JSON in the form of "loaders" in to_json(VerifyReport).
  /// They replace those of the tables; findings come on top.
  std::string answers{};
};

inline constexpr OptionRow<VerifyOptions> kVerifyOptions[] = {
    {.names = "PATH",
     .member = &VerifyOptions::path,
     .text = "model folder, or one .safetensors or .gguf file",
     .model = true},
    {.names = "--source",
     .member = &VerifyOptions::source,
     .value = "DIR",
     .text = "the original checkpoint; every weight is compared with it",
     .model = true},
    {.names = "--for",
     .member = &VerifyOptions::loader,
     .value = "LOADER",
     .text = "give the verdict of one loader: {choices}; of all if not given",
     .choices = option_rules::loaders,
     .keyword = "loader"},  // "for" is a word of Python
    {.names = "--ask",
     .member = &VerifyOptions::asked,
     .value = "LOADER",
     .text = "ask this loader, as it is installed, and --for, too: {choices}; needs the Python "
             "package",
     .choices = option_rules::asked_loaders,
     .keyword = "loaders"},
    {.names = "--tensor-parallel",
     .member = &VerifyOptions::tensor_parallel,
     .value = "N",
     .text = "judge for N GPUs that share every layer; without it the numbers that work are listed",
     .least = 1,
     .most = 1 << 16},
    {.names = "--full",
     .member = &VerifyOptions::full,
     .text = "compare every byte with the hashes in nvfp4.files.json, which nvfp4 writes beside a "
             "model"},
};

/// The options of inspect_checkpoint(). Names and types of a .gguf file are those in the file.
struct InspectOptions {
  std::filesystem::path path;
  std::optional<std::string> tensor;
  bool histograms = true;                         ///< if true, every code and scale is read
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};

inline constexpr OptionRow<InspectOptions> kInspectOptions[] = {
    {.names = "PATH",
     .member = &InspectOptions::path,
     .text = "model folder, or one .safetensors or .gguf file",
     .model = true},
    {.names = "--tensor",
     .member = &InspectOptions::tensor,
     .value = "NAME",
     .text = "show only this tensor, with its first blocks"},
    {.names = "--no-histogram",
     .member = &InspectOptions::histograms,
     .text = "read headers only: fast, but without ranges of scales and histograms of codes",
     .keyword = "histograms"},
};

/// The options of sample_checkpoint().
struct SampleOptions {
  std::filesystem::path output;
  std::string arch = "llama";
  int layers = 0;  ///< 0: 2
  double scale = 0.125;
  std::uint64_t seed = 0;
  int shards = 0;  ///< 0: one for each 4 GB
  bool overwrite = false;
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};

inline constexpr OptionRow<SampleOptions> kSampleOptions[] = {
    {.names = "OUTPUT", .member = &SampleOptions::output, .text = "folder to write; new or empty"},
    {.names = "--arch",
     .member = &SampleOptions::arch,
     .value = "NAME",
     .text = "llama (the default: Llama-3.1-8B) or deepseek-v3",
     .choices = option_rules::architectures},
    {.names = "--layers",
     .member = &SampleOptions::layers,
     .value = "N",
     .text = "decoder layers, 1 to 1000; 2 if not given",
     .most = 1000},
    {.names = "--scale",
     .member = &SampleOptions::scale,
     .value = "S",
     .text = "factor of every width of the real model, 0.015625 to 4",
     .least = 1.0 / 64,
     .most = 4},
    {.names = "--seed",
     .member = &SampleOptions::seed,
     .value = "N",
     .text = "seed of the random weights"},
    {.names = "--shards",
     .member = &SampleOptions::shards,
     .value = "N",
     .text = "number of files; one for each 4 GB if not given",
     .most = 99999},
    {.names = "--overwrite",
     .member = &SampleOptions::overwrite,
     .text = "replace the checkpoint that OUTPUT holds"},
};

/// Throws UnsupportedError for an address such as "s3://bucket/model", also as Python's pathlib
/// changes it: "s3:/bucket/model". It would otherwise name a folder "s3:" of this machine.
/// "C:/model" is no address, and a folder with such a name is "./s3:/bucket".
void require_no_address(const std::filesystem::path& path);
/// Returns the size in bytes that a text such as "24GiB", "24 GB" or "1000000" gives. Units are
/// powers of 1024 or 1000. Throws ValueError.
std::uint64_t size_from_text(const std::string& text);

}  // namespace nvfp4
