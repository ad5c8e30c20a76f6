#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/io/text_pool.h"
#include "checkpoint/plan/spec_table.h"
#include "checkpoint/recipe/recipe.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/statistics/statistics.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "quantizers/gram_factor.h"
#include "quantizers/method.h"

/// The complete plan of the output, except the bytes of its tensors. It is made before the first
/// byte is written.
namespace nvfp4::checkpoint {

inline constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The operation that produces an output matrix.
enum class Work : std::uint8_t {
  quantize,   ///< NVFP4, from a plain weight or FP8
  transcode,  ///< NVFP4, from MXFP4: the same values, except in blocks out of range
  move,       ///< NVFP4, from NVFP4: codes and scales are copied
  fp8,        ///< FP8 (E4M3)
  decode,     ///< a plain dtype
};

/// The scales of an NVFP4 weight whose codes are copied.
struct MovedScales {
  GlobalScale global;
  float own = 1;         ///< global scale of the input, as a multiplier
  float ratio = 1;       ///< factor for the block scales
  bool changes = false;  ///< block scales differ from those of the input
};

/// One matrix that is not copied byte for byte.
struct Unit {
  std::size_t tensor = 0;  ///< index in Plan::tensors
  Work work = Work::quantize;
  bool interleaved = false;                           ///< columns of both matrices alternate
  Fp8Module::Scales fp8 = Fp8Module::Scales::tensor;  ///< only for Work::fp8
  MovedScales moved;                                  ///< only for Work::move
  std::optional<GlobalScale> input;                   ///< input scale if it is known, for any work
  WeightSlice slice;
  /// The tensor whose columns stand beside those of `tensor` in a dequantized stack: up beside
  /// gate.
  std::size_t second = kNone;
  std::int64_t row_multiple = 1;  ///< number of rows that must be written together
  /// First output element of a dequantized matrix or of a part of a stack.
  std::int64_t out_begin = 0;
  /// Rows of the NVFP4 stack [K, stack_rows] that contains this matrix. 0: the matrix is a weight
  /// of its own.
  std::int64_t stack_rows = 0;
  /// The statistics of the unit's inputs. Null: calibration saw no token.
  const InputStatistics* statistics = nullptr;
  std::size_t group = 0;  ///< index in Plan::groups
  /// Indices of tensors in the output shard; kNone if the scheme has no such tensor.
  std::size_t codes = kNone, scales = kNone, weight_global = kNone, input_global = kNone,
              marker = kNone;

  /// Returns the number of columns of a dequantized matrix.
  std::int64_t out_cols() const { return second == kNone ? slice.cols : 2 * slice.cols; }
};

/// A tensor of the plan. Its texts belong to the input or to Plan::texts, since a plan may have
/// hundreds of thousands.
struct PlannedTensor {
  const LogicalTensor* source = nullptr;
  StoredTensor stored;    ///< the source of a copy: the tensor, or a part of it
  std::string_view name;  ///< the name in reports
  std::size_t shard = 0;
  std::string_view kind, reason;          ///< kind and reason of its Selection
  std::string_view action;                ///< "quantized", "kept", ...
  std::size_t first_unit = 0, units = 0;  ///< its units in Plan::units; none for a copy
  std::size_t copy = kNone;               ///< index in the output shard of a copy, otherwise kNone
  std::size_t marker = kNone;  ///< index of the marker of copied FP8, if the scheme has one
  std::uint64_t bytes_before = 0, bytes_after = 0;
};

/// An output tensor that is the scale of keys or values in the cache.
struct PlannedCacheScale {
  std::size_t tensor = kNone;  ///< index in the output shard
  float amax = 0;              ///< amax of the cached values
};

struct PlannedShard {
  std::string file;
  SpecTable specs;
  std::vector<PlannedCacheScale> cache_scales;
  safetensors::Metadata metadata;
  std::size_t first_tensor = 0, tensors = 0;
};

inline constexpr std::size_t kGptqCandidates = 4;

/// The result of writing a tensor: its error and the choices made.
struct Outcome {
  QuantizationError error;
  double weighted_error = 0;         ///< if requested; see weighted_error()
  std::uint64_t clamped_blocks = 0;  ///< number of MXFP4 blocks that NVFP4 cannot hold exactly
  /// gptq: the best candidate of each row, by its place in GptqCandidate.
  std::vector<ChosenRows> chosen_rows = {};
  OutputError output = {};  ///< gptq: the error over the calibration text
  GramFactor::By factored = GramFactor::By::nobody;
  /// Indices of the clamped blocks in the source's scales, flattened.
  std::vector<std::int64_t> clamped = {};

  void add_chosen(const ChosenRows& more) {
    if (!chosen_rows.empty() && chosen_rows.back().candidate == more.candidate)
      chosen_rows.back().rows += more.rows;
    else
      chosen_rows.push_back(more);
  }
};

/// Units that share one weight global scale and one input global scale.
struct Group {
  std::vector<std::size_t> units;
  Work work = Work::quantize;
  float input_amax = 0;
  /// The largest global scale of copied members, if others of the group are encoded. The group's
  /// global scale is at least as large.
  std::optional<GlobalScale> moved_global;
};

/// Reports whether the unit has a scale that is computed from a measured amax.
inline bool is_measured(const Group& group, const Unit& unit) {
  return group.work == Work::quantize || group.work == Work::transcode ||
         (group.work == Work::fp8 && unit.fp8 == Fp8Module::Scales::tensor);
}

struct Plan {
  const CheckpointFormat* format = nullptr;  ///< null if nothing stays quantized
  std::vector<PlannedShard> shards;
  std::vector<PlannedTensor> tensors;  ///< shard by shard, in the order of their data
  std::vector<Unit> units;             ///< in the order of their tensors
  std::vector<Group> groups;
  TextPool texts;  ///< the texts of the tensors
  std::vector<std::string> warnings;
  /// Contents of the files; the last two may be empty.
  std::string config_json, hf_quant_json, params_json;
  std::string index_name;        ///< file name of the index; empty if the output has none
  std::uint64_t total_size = 0;  ///< bytes of all tensors, for the index
  /// Fingerprint of the file, which is read only once.
  std::optional<std::uint64_t> input_amax_fingerprint;
  std::shared_ptr<const Statistics> statistics;  ///< null if none are given
  std::optional<std::uint64_t> statistics_fingerprint;
  std::vector<RecipeRuleReport> rules;  ///< a report for each rule of the recipe
  bool drop = false;                    ///< tensors that the format cannot hold may be left out
  const Method* method = nullptr;       ///< the method of quantized tensors
  std::chrono::steady_clock::time_point started;
};

/// The options of a run. Each command is a task; conversions share the code of quantization.
struct TransformOptions : QuantizeCheckpointOptions {
  enum class Task : std::uint8_t {
    quantize,  ///< plain, FP8 and MXFP4 weights become NVFP4
    convert,   ///< plain weights are copied
    decode,    ///< nothing stays quantized
  };
  Task task = Task::quantize;
  ChosenMethod chosen = method_from_text("mse");  ///< the method of `method`
  std::shared_ptr<const Recipe> layers{};         ///< the parsed recipe; null if there is none
  safetensors::DType plain = safetensors::DType::bf16;  ///< dtype of dequantized weights
  bool takes_scheme = false;  ///< the scheme is that of the input's NVFP4 weights
  bool weigh_errors = false;  ///< fill Outcome::weighted_error
  /// Text that distinguishes this run from others with the same options.
  std::string variant{};
  /// The budget of all patterns of the run.
  SharedBudget match_budget = std::make_shared<MatchBudget>();
};

/// Makes the plan of a run. Throws ValueError, FormatError or UnsupportedError.
Plan make_plan(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
