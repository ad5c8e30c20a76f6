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

#include "nvfp4/run_options.h"
#include "nvfp4/scheme.h"

/// Whole model folders: quantize, inspect, compare, sample.
namespace nvfp4 {

struct QuantizeCheckpointOptions : RunOptions {
  Scheme scheme = Scheme::nvfp4;
  /// One of output_formats(). Empty: what default_format() says.
  std::string format;
  /// One of method_names(), in place of `quantizer`; empty: `quantizer`, and "weighted" for mse
  /// with `statistics`.
  std::string method;
  /// What calibration saw of the layers' inputs: a file of `nvfp4-calibrate`, or an
  /// importance matrix of llama.cpp in GGUF. Weights that it does not have are quantized by mse,
  /// with a warning. Its amaxes count where `input_amax` and the input have none.
  std::optional<std::filesystem::path> statistics;
  int sweeps = 4;  ///< gptq: of descent over scales and codes, at most
  /// Exact tensor or module name, glob (`*`, `?`), or "re:" and a regular expression in Perl's
  /// syntax, near to Python's `re`. Each must match the whole name. ValueError for an expression
  /// that is invalid, or takes more than a million steps on a name.
  /// `ignore` wins over `include`, which wins over the defaults; nothing can include a tensor that
  /// is not 2-D (or stacked experts), BF16, F16, F32, FP8 or MXFP4, and 16 · n deep. FP8 and MXFP4
  /// weights that are not quantized are dequantized to BF16. What is NVFP4 already keeps its codes,
  /// scales and input scale, whatever the defaults say of it; `ignore` dequantizes it to BF16. Only
  /// where loaders fuse it with a weight that is quantized now and needs a larger global scale,
  /// both get that one, and its block scales are rounded (with a warning); such weights also take
  /// the largest of their input scales. An expert layer is quantized as a whole or not at all.
  std::vector<std::string> ignore, include;
  /// Which layers become what: one of recipe_names(), or a file in YAML, as docs/recipes.md says.
  /// `ignore` and `include` win over it. Its scheme, if it has one, counts in place of `scheme`.
  std::optional<std::filesystem::path> recipe;
  /// Layers stay in FP8 or BF16 so that the summed output error is least: at that many bits a
  /// weight on average, scales included, 4.5 to 16, over the weights that are quantized without a
  /// recipe; or at most that many bytes of output. The model is read twice more. Not both, and no
  /// recipe beside them. Which layers is the report's and the card's recipe.
  std::optional<double> bits;
  std::optional<std::uint64_t> size;
  /// LoRA adapters of PEFT: folders, or "folder=weight", which are added in FP32 while the model is
  /// read. Weights that are not quantized become BF16 with them. What is no plain or
  /// rank-stabilized LoRA (DoRA, biases, modules trained whole, embeddings) is an UnsupportedError.
  std::vector<std::string> merge;
  /// Comma-separated last name components that share one global scale: "w1,w3".
  std::vector<std::string> fuse;
  /// Leave out tensors that the format has no place for (GGUF: layers for multi-token prediction,
  /// scales of key and value caches), with a warning. Else they are an UnsupportedError.
  bool drop = false;
  /// Take weights that verify_checkpoint() calls broken (scales NaN, infinite, negative, far too
  /// large or in the wrong sense, FP8 codes NaN), with a warning. Else they are a FormatError.
  bool force = false;
  /// Leave what is not quantized of a model in FP32 as it is. Else it becomes BF16, and config.json
  /// says so; router biases, parameters of state spaces and what transformers keeps in FP32 stay.
  /// Without effect on other models, and on formats in one file.
  bool keep_dtype = false;
  /// Of mse: for each weight, or group of weights that loaders fuse, the better of the global
  /// scales amax / 1536 and amax / 2688, as choose_global_scale() says; else the first. Every
  /// weight is read and quantized twice more. OptionsError with another quantizer.
  bool best_global_scale = false;
  /// Of several processes that write one folder, on one file system that all of them see: this one
  /// is `rank` of `ranks`. Each writes whole shards, of about the same number of bytes; the last
  /// one to end writes index and configuration. Bytes are those of one process. One that
  /// died is run again with the same options; `resume` is not needed, `overwrite` a ValueError.
  /// Formats in one file are an UnsupportedError.
  int rank = 0, ranks = 1;
};

/// A process among those that were started together.
struct Rank {
  int rank = 0, ranks = 1;
};
/// `ranks` is a number, or "auto": what torchrun (RANK, WORLD_SIZE), Open MPI
/// (OMPI_COMM_WORLD_RANK, _SIZE), MPICH (PMI_RANK, PMI_SIZE) or Slurm (SLURM_PROCID, SLURM_NTASKS)
/// says in the environment, the first that is there; `rank` must then be absent. Throws ValueError.
Rank rank_from_text(std::optional<int> rank, const std::string& ranks);

inline constexpr std::size_t kMostClampedListed = 1'000'000;

/// ‖X (w - ŵ)‖² over the tokens X that calibration saw, of all rows of a weight.
struct OutputError {
  double mse = 0;   ///< of plain mse
  double kept = 0;  ///< of what was written
};

/// Rows of a weight, one below the other, for which gptq's candidate (as in TensorReport::chosen)
/// was the best.
struct ChosenRows {
  std::size_t candidate = 0;
  std::int64_t rows = 0;
};

struct TensorReport {
  std::string name;
  /// "quantized", "kept", "converted" (MXFP4, without rounding), "dequantized", "moved" (NVFP4),
  /// "fp8" (to E4M3), "merged" (with an
  /// adapter, to BF16), "cast" (FP32 to BF16)
  std::string action;
  std::string kind;    ///< "linear", "norm", "embedding", ...
  std::string reason;  ///< why it was kept
  std::vector<std::int64_t> shape;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double squared_error = 0, squared_norm = 0;  ///< of quantized tensors
  /// Of gptq: rows that mse, weighted, GPTQ alone and descent quantized best.
  std::array<std::int64_t, 4> chosen{};
  std::vector<ChosenRows> chosen_rows;  ///< the same, row by row
  OutputError output;                   ///< of gptq
  std::string_view factors;  ///< of gptq: who factored the Gram matrix, "Eigen" or "cuSOLVER"
  std::uint64_t clamped_blocks = 0;  ///< MXFP4 blocks that NVFP4 could not hold exactly
  /// Which: where their scales are among those of the source's tensor, flattened; ascending. Fewer
  /// than clamped_blocks if the checkpoint has more than kMostClampedListed of them.
  std::vector<std::int64_t> clamped;
  bool measured = false;  ///< the four above are known: not in a dry run, nor of reused shards
};

/// A rule of a recipe, and what it caught. Of the rules that fit a weight the last decides.
struct RecipeRuleReport {
  int line = 0;              ///< of the recipe
  std::string text, action;  ///< "kind attention", "keep"
  std::int64_t caught = 0;   ///< weights that it fits and that could be quantized
  std::int64_t decided = 0;  ///< those of them that no later rule fits
  std::int64_t usual = 0;    ///< tensors that it fits and that stay as usual: norms, routers, ...
  std::uint64_t bytes = 0;   ///< of `decided`, in the input
  std::string first;         ///< of `decided`
};

/// What a number of bits costs.
struct BudgetPoint {
  double bits = 0, error = 0;
};

/// "24GiB", "24 GB", "1000000": powers of 1024 or 1000. Throws ValueError.
std::uint64_t size_from_text(const std::string& text);

struct QuantizeReport {
  std::vector<TensorReport> tensors;
  std::vector<std::string> warnings;  ///< patterns without effect, files left behind, ...
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::int64_t carried_files = 0;  ///< tokenizer and the like, copied as they are
  std::uint64_t carried_bytes = 0;
  std::string card;  ///< file in the output with the model card; "" if none was written
  double seconds = 0;
  std::uint64_t peak_memory_bytes = 0;  ///< largest resident size of this process
  Device device;                        ///< that encoded
  std::string backend;                  ///< of the CPU, which did the rest
  std::string method;                   ///< one of method_names()
  Scheme scheme = Scheme::nvfp4;
  std::string recipe;                   ///< "recipe mlp", or the name of its file; "": none
  std::vector<RecipeRuleReport> rules;  ///< of the recipe, in its order
  std::vector<BudgetPoint> curve;       ///< of `bits` and `size`: the least error at some budgets
  std::string error_of;  ///< of `curve`: "last hidden state", "outputs" or "weights"; "": none
  int threads = 0;
  int shards = 0, shards_reused = 0;  ///< reused: finished by an earlier run
  int rank = 0, ranks = 1;            ///< as of the options
  /// False: other ranks have shards to write, and the last of them finishes the output.
  bool complete = true;
  bool dry_run = false;
};

/// "max", "four_over_six", "mse"; "weighted", whose errors count by the mean square of the inputs;
/// "gptq", which needs the Gram matrices: GPTQ, then descent over block scales and codes together.
std::vector<std::string> method_names();

/// "all", "mlp", "experts", ...
std::vector<std::string> recipe_names();

/// Throws ValueError unless `pattern` can stand in `ignore` and `include`.
void check_pattern(const std::string& pattern);

/// A form in which quantized checkpoints are written.
struct FormatInfo {
  std::string name;  ///< "modelopt"
  std::string note;  ///< a few words about it; may be empty
  /// Of the file that the output is, and that is written whole or not at all: ".gguf"; "" for a
  /// folder, in which an interrupted run can be resumed.
  std::string extension;
};
/// "modelopt"; "compressed-tensors"; "comfyui", one file in a folder; "gguf", one file; ...
std::vector<FormatInfo> output_formats();

/// Of an output of that name: "gguf" for a .gguf file, else "modelopt".
std::string default_format(const std::filesystem::path& output);

/// Quantizes a Hugging Face model folder (or one .safetensors or .gguf file) in bounded memory. On
/// a GPU each of up to eight threads keeps two chunks of rows under way, in memory taken once: one
/// is read or written while the other is uploaded, encoded and downloaded on a stream of its own.
/// Until the GPU has started, 0.2 to 0.3 s, the CPU encodes. Up to 512 MiB of its memory
/// keep what was read to be measured. Throws IoError, FormatError, ValueError, DeviceError,
/// UnsupportedError (if the device cannot be used: before an old output is removed or a new shard
/// gets its name). Nothing incomplete is left under a final name; an interrupted run goes on with
/// `resume`. A model card is written into an output folder: README.md, or README-NVFP4.md beside
/// one of the input or of somebody else.
QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options);

/// The report as JSON, for --report and --json.
std::string to_json(const QuantizeReport& report);

struct InspectedTensor {
  std::string name;
  std::string dtype;                ///< as stored
  std::string scheme;               ///< "nvfp4", "mxfp4", "fp8", or "" for a plain tensor
  std::vector<std::int64_t> shape;  ///< of the matrix that it stands for
  std::uint64_t bytes = 0;          ///< with its scales
  std::string file;
  double global_scale = 0;            ///< as a multiplier
  std::optional<double> input_scale;  ///< as a multiplier
  double scale_min = 0, scale_max = 0;
  std::vector<std::uint64_t> codes;  ///< 16 counts; only filled on request
};

struct InspectReport {
  std::string path, format, scheme, model_type;
  bool complete = true;  ///< false: an interrupted quantization left this folder
  std::vector<InspectedTensor> tensors;
  std::uint64_t bytes = 0, parameters = 0;
  /// How often each E4M3 byte is a block scale of the NVFP4 ones among `tensors`: 256 counts; only
  /// filled on request.
  std::vector<std::uint64_t> scales;
};

struct InspectOptions {
  /// A folder, or one file; of a .gguf file names and types are its own.
  std::filesystem::path path;
  std::optional<std::string> tensor;              ///< only this one
  bool histograms = true;                         ///< read every code and scale
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};
/// Throws IoError, FormatError, and ValueError if there is no such tensor.
InspectReport inspect_checkpoint(const InspectOptions& options);
std::string to_json(const InspectReport& report);

struct TensorDifference {
  std::string name;
  std::string form_a, form_b;  ///< dtype as stored, or "NVFP4"
  std::vector<std::int64_t> shape;
  double relative_error = 0;  ///< ‖a − b‖ / ‖a‖ (L2)
  double sqnr_db = 0;
  double max_error = 0;
  double squared_error = 0, squared_norm = 0;
};

struct CompareReport {
  std::vector<TensorDifference> tensors;  ///< those not identical; largest relative error first
  std::int64_t identical = 0;             ///< tensors with the same form and the same values
  std::vector<std::string> only_in_a, only_in_b, shape_mismatch;
  double relative_error = 0, sqnr_db = 0, max_error = 0;  ///< over all of `tensors`
  /// Over the relative errors of `tensors`, each of which counts once: few with large norms decide
  /// the one above.
  double median_relative_error = 0;
  bool complete_a = true, complete_b = true;  ///< as in InspectReport
};
/// Compares two checkpoints tensor by tensor, dequantizing where needed, in bounded memory.
/// Throws IoError, FormatError.
CompareReport compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                  const std::function<void(const Progress&)>& progress = {});
std::string to_json(const CompareReport& report);

struct SampleOptions {
  std::filesystem::path output;
  std::string arch = "llama";  ///< or "deepseek-v3"
  int layers = 0;              ///< 0: 2
  double scale = 0.125;        ///< of every width of the real model; 1 is the real size
  std::uint64_t seed = 0;
  int shards = 0;  ///< 0: one for each 4 GB
  bool overwrite = false;
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};
struct SampleReport {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0, parameters = 0;
  int shards = 0;
};
/// Writes a synthetic BF16 checkpoint with real names and shapes and heavy-tailed weights, in
/// bounded memory. The values depend on seed and architecture only, never on threads or shards.
/// Throws IoError, ValueError.
SampleReport sample_checkpoint(const SampleOptions& options);

}  // namespace nvfp4
