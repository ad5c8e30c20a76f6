#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/families/experts.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/recipe/recipe.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/statistics/statistics.h"
#include "checkpoint/work/work.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "quantizers/method.h"

/// The complete plan of the output, except the bytes of its tensors. It is made before the first
/// byte is written.
namespace nvfp4::checkpoint {

/// A pool of texts, many of them equal. It stores each once and must outlive the views.
class TextPool {
 public:
  std::string_view keep(std::string_view text) {
    const auto found = texts_.find(text);
    return found != texts_.end() ? *found : *texts_.emplace(text).first;
  }

 private:
  std::set<std::string, std::less<>> texts_;
};

/// A table of TensorSpecs in a tenth of the memory. The tensors of a weight share the beginning of
/// their names, and a model has few shapes.
class SpecTable {
 public:
  std::size_t size() const { return entries_.size(); }
  void push_back(const safetensors::TensorSpec& spec);
  safetensors::TensorSpec operator[](std::size_t i) const { return {name(i), dtype(i), shape(i)}; }
  std::string name(std::size_t i) const;
  safetensors::DType dtype(std::size_t i) const {
    return static_cast<safetensors::DType>(entries_[i].dtype);
  }
  const std::vector<std::int64_t>& shape(std::size_t i) const { return shapes_[entries_[i].shape]; }
  std::uint64_t bytes(std::size_t i) const;
  /// Compares two names, also of two tables. The result is negative, 0 or positive.
  int compare_names(std::size_t i, const SpecTable& other, std::size_t j) const;
  /// Moves entry order[i] to place i.
  void reorder(std::span<const std::uint32_t> order);

 private:
  struct Entry {
    std::uint32_t begin = 0;  ///< offset in text_
    std::uint32_t size : 24 = 0;
    std::uint32_t dtype : 8 = 0;
    std::uint32_t suffix = 0, shape = 0;  ///< indices in suffixes_ and shapes_
  };
  template <class T>
  static std::uint32_t number_of(const T& value, std::map<T, std::uint32_t>& numbers,
                                 std::vector<T>& values);
  std::string_view stem(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.size);
  }

  std::vector<Entry> entries_;
  std::string text_;                   ///< the names up to their last dots
  std::vector<std::string> suffixes_;  ///< the last components, with the dot
  std::vector<std::vector<std::int64_t>> shapes_;
  std::map<std::string, std::uint32_t> suffix_numbers_;
  std::map<std::vector<std::int64_t>, std::uint32_t> shape_numbers_;
};

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

/// Returns the values of options that differ from the members, for options::record(): a file by the
/// fingerprint of its content.
Json known_options(const Plan& plan, const ModelFolder& model, const TransformOptions& options);

/// Returns the metadata of an output shard: the input's, without what formats write about their own
/// tensors.
safetensors::Metadata metadata_of_output(safetensors::Metadata of_input);

/// Adds the producer if anything is quantized, and removes it if nothing stays quantized. A run
/// that only copies codes and scales leaves the input's entry.
void name_producer(Plan& plan, ModelConfig& config, const ModelFolder& model,
                   const TransformOptions& options);

/// Stores the inverses of global scales that come from the input. The format stores either the
/// multiplier or the divisor, and rounding loses the other.
void keep_reciprocals(Plan& plan);

/// Sorts a shard's tensors by decreasing element size, then by name, as the writer of safetensors
/// does. Without gaps each tensor then starts at a multiple of its element size, as PyTorch's
/// loader needs. The order of the input has no influence, so a conversion back gives the same file.
void sort_tensors(Plan& plan, PlannedShard& shard, std::size_t first_unit);

/// A tensor of the output.
struct PlannedName {
  const PlannedShard* shard = nullptr;
  std::uint32_t tensor = 0;  ///< the index in shard->specs

  std::string text() const { return shard->specs.name(tensor); }
  int compare(const PlannedName& other) const {
    return shard->specs.compare_names(tensor, other.shard->specs, other.tensor);
  }
};
/// Returns the tensors of all shards, sorted by name. Tensors with the same name are in the order
/// of their shards.
std::vector<PlannedName> sorted_names(const Plan& plan);
/// Throws UnsupportedError with the first name that occurs twice.
void require_unique_names(const Plan& plan);

}  // namespace nvfp4::checkpoint
