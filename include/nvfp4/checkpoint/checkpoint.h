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

#include "nvfp4/checkpoint/options.h"
#include "nvfp4/scheme.h"

/// Operations on whole checkpoints: quantize, inspect, compare, sample.
namespace nvfp4 {

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

/// The least error at a budget: a number of bits per weight, or a percentage of multiplications.
struct BudgetPoint {
  double budget = 0, error = 0;
};

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
  Scheme scheme = Scheme::w4a4;
  std::string recipe;                   ///< "recipe mlp", or the file's name; "": none
  std::vector<RecipeRuleReport> rules;  ///< rules of the recipe, in its order
  std::vector<BudgetPoint> curve;       ///< least error at some budgets: `bits`, `size`, `w4a4`
  std::string curve_over;  ///< "bits", or "w4a16": percentage of multiplications; "": none
  std::string error_of;    ///< meaning of the errors in `curve`: "last hidden state", "outputs",
                           ///< "weights"; "": none
  int threads = 0;
  int shards = 0, shards_reused = 0;  ///< number of shards; of these written by an earlier run
  int rank = 0, ranks = 1;            ///< see QuantizeCheckpointOptions
  /// False if other ranks have shards to write. The last of them completes the output.
  bool complete = true;
  bool nothing_done = false;  ///< true if the output was complete before the run
  bool dry_run = false;
};

/// Returns "max", "four_over_six", "mse", "weighted" and "gptq". "weighted" is mse with errors that
/// are weighted by the mean squares of the inputs. "gptq" needs the Gram matrices: it runs GPTQ,
/// then descends over block scales and codes together.
std::vector<std::string> method_names();

/// Returns "all", "mlp", "experts", ...
std::vector<std::string> recipe_names();

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
