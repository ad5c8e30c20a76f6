#pragma once

#include <chrono>
#include <cstdint>
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
#include "checkpoint/work/work.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "quantizers/method.h"

/// The complete plan of the output, except the bytes of its tensors. It is made before the first
/// byte is written.
namespace nvfp4::checkpoint {

/// One matrix that is not copied byte for byte.
struct Unit {
  std::size_t tensor = 0;     ///< index in Plan::tensors
  std::size_t group = kNone;  ///< index in Plan::groups; kNone: it shares no scale
  WeightSlice slice;
  /// The statistics of the unit's inputs. Null: calibration saw no token.
  const InputStatistics* statistics = nullptr;
  /// The tensor whose columns stand beside those of `tensor` in a dequantized stack: up beside
  /// gate.
  std::size_t second = kNone;
  Places places;
  const Work kind = DequantizeWork(PlainOutput());

  const MatrixWork& work() const {
    return std::visit([](const MatrixWork& work) -> const MatrixWork& { return work; }, kind);
  }
  /// Returns the work if it is of this class, otherwise null.
  template <class T>
  const T* as() const {
    return dynamic_cast<const T*>(&work());
  }
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

/// Units that share one weight global scale and one input global scale. Those that are encoded are
/// of one kind.
struct Group {
  std::vector<std::size_t> units;
  /// The largest global scale of copied members, if others of the group are encoded. The group's
  /// global scale is at least as large.
  std::optional<GlobalScale> copied;
};

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
  Scheme scheme = Scheme::w4a4;         ///< w4a16 if all NVFP4 is W4A16
  std::size_t weights_only = 0;         ///< number of W4A16 modules beside W4A4 ones
  const Method* method = nullptr;       ///< the method of quantized tensors
  std::chrono::steady_clock::time_point started;
};

/// The options of a run. Each command is a task; conversions share the code of quantization.
struct TransformOptions : QuantizeCheckpointOptions {
  enum class Task : std::uint8_t {
    quantize,  ///< plain, FP8, MXFP4, INT8 and INT4 weights become NVFP4
    convert,   ///< plain weights are copied
    decode,    ///< nothing stays quantized
  };
  Task task = Task::quantize;
  ChosenMethod chosen = method_from_text("mse");  ///< the method of `method`
  std::shared_ptr<const Recipe> layers{};         ///< the parsed recipe; null if there is none
  safetensors::DType plain = safetensors::DType::bf16;  ///< dtype of dequantized weights
  bool rest_is_q8_0 = false;  ///< weights that a GGUF file cannot hold become Q8_0, not BF16
  bool drops_inputs = false;  ///< the scheme was W4A4, and the format has no scales of inputs
  bool takes_scheme = false;  ///< the schemes are those of the input's NVFP4 weights
  bool weigh_errors = false;  ///< fill Outcome::weighted_error
  /// Text that distinguishes this run from others with the same options.
  std::string variant{};
  /// The budget of all patterns of the run.
  SharedBudget match_budget = std::make_shared<MatchBudget>();
};

/// Makes the plan of a run. Throws ValueError, FormatError or UnsupportedError.
Plan make_plan(const ModelFolder& model, const TransformOptions& options);

}  // namespace nvfp4::checkpoint
