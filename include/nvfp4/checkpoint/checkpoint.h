#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint/run_options.h"
#include "nvfp4/scheme.h"

/// Operations on whole checkpoints: quantize, inspect, compare, sample.
namespace nvfp4 {

/// The options of quantize_checkpoint().
struct QuantizeCheckpointOptions : RunOptions {
  Scheme scheme = Scheme::nvfp4;
  /// The name of the output format, one of output_formats(). Empty: default_format() of the output.
  std::string format;
  /// The statistics of the layers' inputs: a file of `nvfp4-calibrate`, or an importance matrix of
  /// llama.cpp in GGUF. A weight that is not in the file is quantized by mse, with a warning. The
  /// file's amaxes are used if `input_amax` and the input have none.
  std::optional<std::filesystem::path> statistics;
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
  /// The recipe that decides the format of each layer: one of recipe_names(), or a YAML file as in
  /// docs/recipes.md. `ignore` and `include` have priority over it. Its scheme, if it has one,
  /// replaces `scheme`.
  std::optional<std::filesystem::path> recipe;
  /// A budget: some layers stay in FP8 or BF16 so that the summed output error is minimal. `bits`
  /// is the average number of bits per weight, scales included, 4.5 to 16. The average is over the
  /// weights that are quantized without a recipe. `size` is the largest size of the output in
  /// bytes. The input is read two more times. Only one of `bits`, `size` and `recipe` can be given.
  /// The choice is in the report and the model card, as a recipe.
  std::optional<double> bits;
  std::optional<std::uint64_t> size;
  /// LoRA adapters of PEFT: folders, or "folder=weight". They are added in FP32 while the model is
  /// read. Weights with an adapter that are not quantized become BF16. Throws UnsupportedError for
  /// all but plain and rank-stabilized LoRA (DoRA, biases, fully trained modules, embeddings).
  std::vector<std::string> merge;
  /// Last components of names of weights that share one global scale, separated by commas: "w1,w3".
  std::vector<std::string> fuse;
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

/// The rank of a process and the number of processes.
struct Rank {
  int rank = 0, ranks = 1;
};
/// Returns the rank from text. `ranks` is a number, or "auto" with `rank` absent. "auto" reads the
/// environment of the first launcher that is present: torchrun (RANK, WORLD_SIZE), Open MPI
/// (OMPI_COMM_WORLD_RANK, _SIZE), MPICH (PMI_RANK, PMI_SIZE) or Slurm (SLURM_PROCID, SLURM_NTASKS).
/// Throws ValueError.
Rank rank_from_text(std::optional<int> rank, const std::string& ranks);

/// The limit for the clamped blocks of a checkpoint that the report lists.
inline constexpr std::size_t kMostClampedListed = 1'000'000;

/// The output error ‖X (w - ŵ)‖² of a weight, summed over its rows. X are the tokens of the
/// calibration.
struct OutputError {
  double mse = 0;   ///< error with plain mse
  double kept = 0;  ///< error of the written weight
};

/// Consecutive rows of a weight for which the same candidate of gptq was the best.
struct ChosenRows {
  std::size_t candidate = 0;  ///< index, as in TensorReport::chosen
  std::int64_t rows = 0;
};

/// The result for one tensor.
struct TensorReport {
  std::string name;
  /// One of "quantized", "kept", "converted" (MXFP4, without rounding), "dequantized", "moved"
  /// (NVFP4), "fp8" (to E4M3), "merged" (with an adapter, to BF16), "cast" (FP32 to BF16).
  std::string action;
  std::string kind;    ///< "linear", "norm", "embedding", ...
  std::string reason;  ///< why it was kept
  std::vector<std::int64_t> shape;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double squared_error = 0, squared_norm = 0;  ///< for quantized tensors
  /// gptq: number of rows for which mse, weighted, GPTQ alone and descent were the best.
  std::array<std::int64_t, 4> chosen{};
  std::vector<ChosenRows> chosen_rows;  ///< gptq: the same, in the order of the rows
  OutputError output;                   ///< gptq
  std::string_view factors;  ///< gptq: library that factored the Gram matrix: "Eigen", "cuSOLVER"
  std::uint64_t clamped_blocks = 0;  ///< number of MXFP4 blocks that NVFP4 cannot hold exactly
  /// The clamped blocks: indices of their scales in the flattened scale tensor of the source,
  /// ascending. The list is shorter than clamped_blocks if the checkpoint has more than
  /// kMostClampedListed.
  std::vector<std::int64_t> clamped;
  /// True if errors and clamped blocks are known. They are unknown in a dry run, and for a shard of
  /// an earlier run that left no record of them.
  bool measured = false;
};

/// A rule of a recipe and the weights that it matched. The last rule that matches a weight applies.
struct RecipeRuleReport {
  int line = 0;              ///< line in the recipe
  std::string text, action;  ///< "kind attention", "keep"
  std::int64_t caught = 0;   ///< number of matched weights that can be quantized
  std::int64_t decided = 0;  ///< number of these that no later rule matches
  std::int64_t usual = 0;    ///< number of matched tensors that are never quantized: norms, ...
  std::uint64_t bytes = 0;   ///< size of the `decided` weights in the input
  std::string first;         ///< name of the first `decided` weight
};

/// The error at a number of bits per weight.
struct BudgetPoint {
  double bits = 0, error = 0;
};

/// Returns the size in bytes that a text such as "24GiB", "24 GB" or "1000000" gives. Units are
/// powers of 1024 or 1000. Throws ValueError.
std::uint64_t size_from_text(const std::string& text);

/// The result of quantize_checkpoint(), convert_checkpoint() and repair_checkpoint().
struct QuantizeReport {
  std::vector<TensorReport> tensors;
  std::vector<std::string> warnings;  ///< patterns without effect, remaining files, ...
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::int64_t carried_files = 0;  ///< number of files copied unchanged: tokenizer, ...
  std::uint64_t carried_bytes = 0;
  std::string card;  ///< name of the model card in the output; "" if none was written
  double seconds = 0;
  std::uint64_t peak_memory_bytes = 0;  ///< largest resident size of this process
  Device device;                        ///< device of the encoder
  std::string backend;                  ///< backend of the CPU
  std::string method;                   ///< method, one of method_names()
  Scheme scheme = Scheme::nvfp4;
  std::string recipe;                   ///< "recipe mlp", or the file's name; "": none
  std::vector<RecipeRuleReport> rules;  ///< rules of the recipe, in its order
  std::vector<BudgetPoint> curve;       ///< least error at some budgets, with `bits` or `size`
  std::string error_of;  ///< meaning of the errors in `curve`: "last hidden state", "outputs",
                         ///< "weights"; "": none
  int threads = 0;
  int shards = 0, shards_reused = 0;  ///< number of shards; of these written by an earlier run
  int rank = 0, ranks = 1;            ///< see QuantizeCheckpointOptions
  /// False if other ranks have shards to write. The last of them completes the output.
  bool complete = true;
  bool dry_run = false;
};

/// Returns "max", "four_over_six", "mse", "weighted" and "gptq". "weighted" is mse with errors that
/// are weighted by the mean squares of the inputs. "gptq" needs the Gram matrices: it runs GPTQ,
/// then descends over block scales and codes together.
std::vector<std::string> method_names();

/// Returns "all", "mlp", "experts", ...
std::vector<std::string> recipe_names();

/// Throws ValueError unless `pattern` is valid for `ignore` and `include`.
void check_pattern(const std::string& pattern);

/// An output format of quantized checkpoints.
struct FormatInfo {
  std::string name;  ///< such as "modelopt"
  std::string note;  ///< a few words; may be empty
  /// The extension of a format that is one file: ".gguf". The file is written as a whole or not at
  /// all. "" is a folder, for which an interrupted run can be resumed.
  std::string extension;
};
/// Returns "modelopt"; "compressed-tensors"; "comfyui", one file in a folder; "gguf", one file; ...
std::vector<FormatInfo> output_formats();

/// Returns the default format for an output path: "gguf" for a .gguf file, else "modelopt".
std::string default_format(const std::filesystem::path& output);

/// Quantizes a Hugging Face model folder (or one .safetensors or .gguf file) in bounded memory.
///
/// On a GPU, each of up to eight threads has two chunks of rows in memory that is allocated once.
/// One chunk is read or written while the other is uploaded, encoded and downloaded on its own
/// stream. Until the GPU has started (0.2 to 0.3 s) the CPU encodes. Up to 512 MiB of GPU memory
/// hold data that was read to be measured.
///
/// Throws IoError, FormatError, ValueError, DeviceError; UnsupportedError if the device cannot be
/// used, before an old output is removed or a new shard gets its name. No incomplete file gets a
/// final name. `resume` continues an interrupted run. An output folder gets a model card:
/// README.md, or README-NVFP4.md if the input or somebody else has a README.md there.
QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options);

/// Returns the report as JSON, for --report and --json.
std::string to_json(const QuantizeReport& report);

/// The description of one tensor.
struct InspectedTensor {
  std::string name;
  std::string dtype;                ///< type in the file
  std::string scheme;               ///< "nvfp4", "mxfp4", "fp8", or "" for a plain tensor
  std::vector<std::int64_t> shape;  ///< shape of the matrix, dequantized
  std::uint64_t bytes = 0;          ///< size with its scales
  std::string file;
  double global_scale = 0;            ///< multiplier
  std::optional<double> input_scale;  ///< multiplier
  double scale_min = 0, scale_max = 0;
  std::vector<std::uint64_t> codes;  ///< counts of the 16 codes; only on request
};

/// The result of inspect_checkpoint().
struct InspectReport {
  std::string path, format, scheme, model_type;
  bool complete = true;  ///< false for the folder of an interrupted quantization
  std::vector<InspectedTensor> tensors;
  std::uint64_t bytes = 0, parameters = 0;
  /// The histogram of the E4M3 bytes of all NVFP4 block scales in `tensors`: 256 counts, only on
  /// request.
  std::vector<std::uint64_t> scales;
};

/// The options of inspect_checkpoint().
struct InspectOptions {
  /// A folder or one file. Names and types of a .gguf file are those in the file.
  std::filesystem::path path;
  std::optional<std::string> tensor;              ///< only this tensor
  bool histograms = true;                         ///< if true, every code and scale is read
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};
/// Returns the tensors of a checkpoint. Throws IoError, FormatError, and ValueError if there is no
/// such tensor.
InspectReport inspect_checkpoint(const InspectOptions& options);
/// Returns the report as one JSON object, for --json.
std::string to_json(const InspectReport& report);

/// The difference of a tensor in two checkpoints.
struct TensorDifference {
  std::string name;
  std::string form_a, form_b;  ///< type in the file, or "NVFP4"
  std::vector<std::int64_t> shape;
  double relative_error = 0;  ///< ‖a − b‖ / ‖a‖ (L2)
  double sqnr_db = 0;
  double max_error = 0;
  double squared_error = 0, squared_norm = 0;
};

/// The result of compare_checkpoints().
struct CompareReport {
  std::vector<TensorDifference> tensors;  ///< tensors that differ, largest relative error first
  std::int64_t identical = 0;             ///< number of tensors with the same form and values
  std::vector<std::string> only_in_a, only_in_b, shape_mismatch;
  double relative_error = 0, sqnr_db = 0, max_error = 0;  ///< over all of `tensors`
  /// The median of the relative errors of `tensors`. Each tensor counts once, whereas
  /// `relative_error` depends mostly on tensors with large norms.
  double median_relative_error = 0;
  bool complete_a = true, complete_b = true;  ///< see InspectReport
};
/// Compares two checkpoints tensor by tensor, dequantizing where needed, in bounded memory.
/// Throws IoError, FormatError.
CompareReport compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                  const std::function<void(const Progress&)>& progress = {});
/// Returns the report as one JSON object, for --json.
std::string to_json(const CompareReport& report);

/// The options of sample_checkpoint().
struct SampleOptions {
  std::filesystem::path output;
  std::string arch = "llama";  ///< "llama" or "deepseek-v3"
  int layers = 0;              ///< number of layers; 0: 2
  double scale = 0.125;        ///< factor for every width of the real model; 1 is the real size
  std::uint64_t seed = 0;
  int shards = 0;  ///< number of shards; 0: one for each 4 GB
  bool overwrite = false;
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};
/// The result of sample_checkpoint().
struct SampleReport {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0, parameters = 0;
  int shards = 0;
};
/// Writes a synthetic BF16 checkpoint with real names and shapes and heavy-tailed weights, in
/// bounded memory. The values depend on seed and architecture only, not on threads or shards.
/// Throws IoError, ValueError.
SampleReport sample_checkpoint(const SampleOptions& options);

}  // namespace nvfp4
