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
#include "nvfp4/checkpoint.h"
#include "quantizers/gram_factor.h"
#include "quantizers/method.h"

/// Everything about the output but its bytes, known before the first one is written.
namespace nvfp4::checkpoint {

inline constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// What becomes of a matrix.
enum class Work : std::uint8_t {
  quantize,   ///< to NVFP4
  transcode,  ///< MXFP4 to NVFP4: the same values, but for blocks out of range
  move,       ///< NVFP4 to NVFP4: codes and scales change places
  fp8,        ///< to E4M3
  decode,     ///< to a plain dtype
};

/// What a weight that moves gets.
struct MovedScales {
  GlobalScale global;
  float own = 1;         ///< the global scale of the input, as a multiplier
  float ratio = 1;       ///< block scales are multiplied by it
  bool changes = false;  ///< block scales are not those of the input
};

/// One matrix to write anew.
struct Unit {
  std::size_t tensor = 0;  ///< in Plan::tensors
  Work work = Work::quantize;
  bool interleaved = false;                           ///< columns of the two in turn
  Fp8Module::Scales fp8 = Fp8Module::Scales::tensor;  ///< of `fp8`
  MovedScales moved;                                  ///< of `move`
  std::optional<GlobalScale> input;                   ///< if it is known, whatever the work
  WeightSlice slice;
  /// A tensor whose rows are decoded beside those of the first: up beside gate, in a stack.
  std::size_t second = kNone;
  std::int64_t row_multiple = 1;  ///< rows that must be written together
  /// Element of the output at which a matrix starts that is decoded, or a part of a stack.
  std::int64_t out_begin = 0;
  /// It becomes a part of a stack of NVFP4, [K, stack_rows] there; 0: a weight of its own.
  std::int64_t stack_rows = 0;
  /// Null where calibration saw nothing.
  const InputStatistics* statistics = nullptr;
  std::size_t group = 0;  ///< in Plan::groups
  /// Tensors of the output shard; kNone where the scheme has no such tensor.
  std::size_t codes = kNone, scales = kNone, weight_global = kNone, input_global = kNone,
              marker = kNone;

  /// Of a decoded matrix.
  std::int64_t out_cols() const { return second == kNone ? slice.cols : 2 * slice.cols; }
};

/// Its texts are those of the input, or kept by the plan: there may be hundreds of thousands.
struct PlannedTensor {
  const LogicalTensor* source = nullptr;
  StoredTensor stored;    ///< what is copied: the tensor, or a part of it
  std::string_view name;  ///< for reports
  std::size_t shard = 0;
  std::string_view kind, reason;          ///< of its Selection
  std::string_view action;                ///< "quantized", "kept", ...
  std::size_t first_unit = 0, units = 0;  ///< if it is written anew
  std::size_t copy = kNone;               ///< tensor of the output shard, if it is copied
  std::size_t marker = kNone;             ///< that of FP8 which is copied, if the scheme has one
  std::uint64_t bytes_before = 0, bytes_after = 0;
};

/// A tensor that is the scale of keys or values in the cache.
struct PlannedCacheScale {
  std::size_t tensor = kNone;  ///< of the output shard
  float amax = 0;              ///< of what is cached
};

struct PlannedShard {
  std::string file;
  SpecTable specs;
  std::vector<PlannedCacheScale> cache_scales;
  safetensors::Metadata metadata;
  std::size_t first_tensor = 0, tensors = 0;
};

inline constexpr std::size_t kGptqCandidates = 4;

/// What became of a tensor.
struct Outcome {
  QuantizationError error;
  double weighted_error = 0;         ///< if it was asked for: see weighted_error()
  std::uint64_t clamped_blocks = 0;  ///< of MXFP4, that NVFP4 cannot hold exactly
  /// gptq: which candidate was the best, row by row, by its place in GptqCandidate.
  std::vector<ChosenRows> chosen_rows = {};
  OutputError output = {};  ///< gptq: over the calibration text
  GramFactor::By factored = GramFactor::By::nobody;
  std::vector<std::int64_t> clamped = {};  ///< where their scales are in the source's, flattened

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
  /// Of members that move beside others that are encoded: the largest. The group's is no smaller.
  std::optional<GlobalScale> moved_global;
};

/// Whether they have a scale that is made of what is measured.
inline bool is_measured(const Group& group, const Unit& unit) {
  return group.work == Work::quantize || group.work == Work::transcode ||
         (group.work == Work::fp8 && unit.fp8 == Fp8Module::Scales::tensor);
}

struct Plan {
  const CheckpointFormat* format = nullptr;  ///< null: nothing stays quantized
  std::vector<PlannedShard> shards;
  std::vector<PlannedTensor> tensors;  ///< shard by shard, in the order of their bytes
  std::vector<Unit> units;             ///< in the order of their tensors
  std::vector<Group> groups;
  TextPool texts;  ///< of the tensors
  std::vector<std::string> warnings;
  std::string config_json, hf_quant_json, params_json;  ///< contents; the last two may be empty
  std::string index_name;                               ///< "" if the output has none
  std::uint64_t total_size = 0;                         ///< of the tensors, for the index
  std::optional<std::uint64_t> input_amax_fingerprint;  ///< of the file, which is read only once
  std::shared_ptr<const Statistics> statistics;         ///< null: none are given
  std::optional<std::uint64_t> statistics_fingerprint;
  std::vector<RecipeRuleReport> rules;  ///< of the recipe
  bool drop = false;                    ///< what the format has no place for may be left out
  const Method* method = nullptr;       ///< of what is quantized
  std::chrono::steady_clock::time_point started;
};

/// What a run is, after the command that started it: quantization, and conversions, which are a
/// kind of it.
struct TransformOptions : QuantizeCheckpointOptions {
  enum class Task : std::uint8_t {
    quantize,  ///< plain, FP8 and MXFP4 weights become NVFP4
    convert,   ///< plain weights stay
    decode,    ///< nothing stays quantized
  };
  Task task = Task::quantize;
  const Method* method = nullptr;                       ///< null: what `quantizer` alone does
  std::shared_ptr<const Recipe> layers{};               ///< the recipe, read; null: there is none
  safetensors::DType plain = safetensors::DType::bf16;  ///< of decoded weights
  bool takes_scheme = false;                            ///< that of the input's NVFP4 weights
  bool decode = false;                                  ///< as of ConvertOptions
  bool weigh_errors = false;                            ///< fill Outcome::weighted_error
  std::string variant{};  ///< what else tells this run from others of the same options
  SharedBudget match_budget = std::make_shared<MatchBudget>();  ///< of all patterns of the run
};

const Method& method_of(const TransformOptions& options);

/// Throws ValueError, FormatError, UnsupportedError.
Plan make_plan(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
