#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/recipe/recipe.h"
#include "checkpoint/source/cache.h"
#include "core/printable.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::checkpoint {

/// Opens the statistics of a run; null if none are given. Throws ValueError if the method needs
/// statistics that are not given. Also throws IoError, FormatError and UnsupportedError.
std::shared_ptr<const Statistics> statistics_of_run(const TransformOptions& options,
                                                    const ModelConfig& config);

/// Returns the statistics of a matrix's inputs. Null: `statistics` is null, does not have the
/// module, or saw no token there. Throws ValueError for statistics of another model.
const InputStatistics* statistics_of(const Statistics* statistics, const WeightSlice& slice);

/// Adds warnings of missing statistics to the plan. Throws ValueError if no weight has any.
void warn_of_missing_statistics(Plan& plan);

/// The modules that a warning is about: their number, and the first of them.
struct Listed {
  std::size_t count = 0;
  std::string first;

  void add(std::string_view module, std::size_t modules = 1) {
    if (count == 0) first = module;
    count += modules;
  }
  std::string text() const { return printable(first) + (count > 1 ? ", ..." : ""); }
};

/// Calibrated activation amaxes: a JSON object from a name, a glob or "re:…" to a positive number.
class InputAmax {
 public:
  InputAmax() = default;
  /// Throws FormatError if `json` is not such an object or has a key twice. Throws ValueError for
  /// an invalid pattern, or if a number's input scale, amax / 2688, is not a normal float.
  InputAmax(const std::string& json, const std::string& file,
            SharedBudget budget = std::make_shared<MatchBudget>());

  /// Returns the amax of a module: an exact name first, then the first pattern that matches,
  /// otherwise 0. Throws ValueError for an expression that takes too long.
  float find(const std::string& module);
  std::vector<std::string> warnings() const;

 private:
  class Reader;
  struct Entry {
    float amax = 0;
    bool used = false, matched = false;  ///< `matched`: even if another entry came first
  };
  std::string file_;
  std::vector<Entry> entries_;
  std::optional<PatternList> patterns_;  ///< the keys of the entries, in order
};

/// Returns a slice of all rows of all matrices of a weight.
WeightSlice whole_weight(const LogicalTensor& t);

/// Returns each matrix of a stack [E, N, K] as [K, N]. The stacks of GPT-OSS in transformers are
/// [experts, in, out], and their packed form is [experts, out, in].
std::vector<WeightSlice> transposed_matrices(const LogicalTensor& t);

/// Reports whether the format keeps the stacks of the model's family. NVFP4 stacks with a global
/// scale for each expert are split.
bool keeps_stacks(const CheckpointFormat& format, const ModelConfig& config,
                  const LogicalTensor& t);

/// A tensor whose matrices become NVFP4 or FP8.
struct EncodedTensor {
  const LogicalTensor* source = nullptr;
  Action action = Action::nvfp4;
  Scheme scheme = Scheme::w4a4;
  bool stays_stacked = false;       ///< the matrices stay one stack
  std::vector<WeightSlice> slices;  ///< empty if the tensor is one matrix
  std::size_t place = kNone;        ///< the planner's index of its first group, if it is grouped

  std::size_t matrices() const { return std::max<std::size_t>(1, slices.size()); }
  WeightSlice slice(std::size_t i) const {
    return slices.empty() ? whole_weight(*source) : slices[i];
  }
};

/// The modules that the output's configuration lists.
struct ListedModules {
  std::vector<KeptModule> kept;
  std::vector<std::string> copied_fp8;
  std::vector<Fp8Module> fp8;
  std::vector<std::string> quantized;
  std::vector<std::string> weights_only;  ///< those of `quantized` in W4A16
};

/// Sets the scheme of the plan: W4A16 if all its NVFP4 weights are, otherwise `scheme`.
void choose_scheme(Plan& plan, ListedModules& modules, Scheme scheme);

/// Adds matrices to a plan. First all tensors are put into the groups that share scales, because
/// loaders fuse them. Then decide() says what each group shares. Last, the tensors are added with
/// the work on their matrices, which does not change any more.
class MatrixPlanner {
 public:
  /// `declared`, the input's declaration, may be null. The arguments must outlive this object.
  /// Throws IoError, FormatError or ValueError for a file of activation amaxes that cannot be used.
  MatrixPlanner(Plan& plan, const TransformOptions& options, ListedModules& modules,
                std::span<const std::string> model_types, const Declared* declared);

  /// Groups the matrices of a tensor, which must not move until decide() has returned. Throws
  /// ValueError for scales of the input that cannot be used, and for an action that makes the
  /// tensor larger and no better.
  void group(EncodedTensor& tensor);
  /// Notes a module that does not become NVFP4: without it no stack of experts is whole.
  void leave(const std::string& module);
  void decide();
  /// Returns the name of the stack that holds a matrix of the tensor, or "" for a weight of its
  /// own.
  std::string stack_of(const EncodedTensor& tensor) const;
  /// Adds the matrices of the plan's last tensor to the shard.
  void add(const EncodedTensor& tensor, PlannedShard& shard);
  /// Adds warnings about all matrices to the plan.
  void warn();

 private:
  /// Facts about the groups of the same projection in all experts of a layer.
  struct Kind {
    std::optional<GlobalScale> input;
    float input_amax = 0;
  };
  struct Draft {
    const EncodedTensor* tensor = nullptr;  ///< the tensor of its first member
    std::uint32_t matrix = 0;               ///< the place of that member in the tensor
    std::uint32_t members = 0, copies = 0, mxfp4 = 0;
    bool fp8 = false, differs = false, is_input_known = false;
    float input_amax = 0;
    std::optional<GlobalScale> copied = {};  ///< the largest global scale of its copied members
    std::optional<GlobalScale> input = {};   ///< the largest input scale that its members have
    std::optional<GlobalScale> shared = {};  ///< the input scale for members that have none
    Kind* kind = nullptr;

    bool encodes() const { return copies < members; }
    std::string module() const { return tensor->slice(matrix).module; }
  };

  /// The matrices of a layer's experts that become one tensor [experts, N, K].
  struct RowStack {
    std::set<std::int64_t> experts;
    std::int64_t rows = 0, cols = 0;
    bool fits = true;  ///< all are NVFP4 of one shape, and each expert is there once
    Places places = {};
    std::uint64_t bytes = 0;

    bool is_whole() const { return fits && *experts.rbegin() == std::ssize(experts) - 1; }
  };

  std::optional<ExpertPlace> place_in_stack(const std::string& module) const;
  void note_expert(const WeightSlice& slice);
  Places places_in_stack(const EncodedTensor& tensor, const WeightSlice& slice, RowStack& stack,
                         const std::string& name, PlannedShard& shard);
  std::uint32_t group(const EncodedTensor& tensor, std::size_t i);
  float input_amax(const EncodedTensor& tensor, const WeightSlice& slice);
  std::optional<GlobalScale> own_input(const EncodedTensor& c, const WeightSlice& slice) const;
  void share_inputs();
  void warn(const Listed& of, std::string text);
  void warn_of_partly_kept();
  void warn_of_lost_inputs();
  void warn_of_companions();
  void add_fp8(const EncodedTensor& tensor, std::size_t i, PlannedShard& shard);
  void add_nvfp4(const EncodedTensor& tensor, std::size_t i, PlannedShard& shard);
  Work nvfp4_work(const EncodedTensor& c, const WeightSlice& slice, const Draft& group,
                  Nvfp4Output output) const;
  Work work_without_global(const LogicalTensor& t, const WeightSlice& slice,
                           const Nvfp4Output& output) const;
  std::vector<OutputTensor> outputs_of(const EncodedTensor& tensor, const WeightSlice& slice) const;
  Places add_outputs(std::span<const OutputTensor> tensors, PlannedShard& shard);
  const Unit& add_unit(const EncodedTensor& tensor, std::size_t i, const Places& places,
                       const Work& work);

  Plan& plan_;
  const TransformOptions& options_;
  ListedModules& modules_;
  const Declared* declared_;
  FuseRules rules_;
  std::span<const std::string> model_types_;
  InputAmax amaxes_;
  std::string amax_file_;  ///< the source of the amaxes, for messages; empty if there is none
  std::map<std::string, std::size_t> by_key_;  ///< empty after decide()
  std::map<std::string, Kind> kinds_;
  std::map<std::string, RowStack> row_stacks_;
  std::vector<Draft> groups_;
  std::vector<std::uint32_t> group_of_;  ///< the group of each matrix
  std::size_t copies_ = 0;
  Listed rounded_;        ///< MXFP4 that other weights of the group round
  Listed rounded_again_;  ///< 4-bit weights whose scales the format cannot hold
  Listed unmeasured_;     ///< FP8 weights whose input scale is 1
  Listed without_input_;  ///< copied weights without an input scale
};

/// Moves the experts of a stack to the file of its first expert. `files`: what each file has.
template <class Candidate>
void gather_stacks(std::vector<std::deque<Candidate>>& files, const MatrixPlanner& matrices) {
  std::map<std::string, std::size_t> home;
  for (std::size_t f = 0; f < files.size(); ++f) {
    std::deque<Candidate> stay;
    for (Candidate& c : files[f]) {
      const std::string stack =
          c.matrices.place == kNone ? std::string() : matrices.stack_of(c.matrices);
      const std::size_t to = stack.empty() ? f : home.emplace(stack, f).first->second;
      (to == f ? stay : files[to]).push_back(std::move(c));
    }
    files[f] = std::move(stay);
  }
}

/// Experts that the input stores one by one, for a model whose family reads stacks of experts.
struct ExpertStack {
  std::string name;                 ///< "model.layers.0.mlp.experts.gate_up_proj"
  std::vector<std::int64_t> shape;  ///< [experts, K, N] or [experts, N, K]
  StackForm form;
  std::size_t parts = 1;  ///< number of matrices of an expert; gate comes before up
  std::vector<const LogicalTensor*> members;  ///< the weights, expert by expert
};

/// The stack of each member.
using StackOf = std::map<const LogicalTensor*, std::shared_ptr<const ExpertStack>>;

/// Returns the stacks that have a quantized member. With `encoded`, returns the stacks, and those
/// of biases, that have no member in it. Throws FormatError if an expert is missing or has another
/// shape.
StackOf find_stacks(std::span<const LogicalTensor> tensors, const ModelConfig& config,
                    const std::set<const LogicalTensor*>* encoded = nullptr);

/// Adds the plan's last tensor to the shard, dequantized to `plain`.
void add_decoded(Plan& plan, PlannedShard& shard, safetensors::DType plain);

/// The form of a weight that a GGUF file cannot hold as NVFP4.
enum class Rest : std::uint8_t { plain, q8_0, mxfp4 };
/// Returns the word for reports.
std::string_view action_of(Rest rest);

/// The weights that become or stay another form than that of the output.
class LostWeights {
 public:
  void add(const LogicalTensor& t, Rest rest, std::string_view reason);
  bool empty() const { return modules_.empty(); }
  /// Returns a line for each form in input and output and reason.
  std::vector<std::string> warnings(std::string_view format) const;

 private:
  std::map<std::array<std::string, 3>, Listed> modules_;
};

/// Reports whether GGUF stores rows of the weight as columns, which blocks of a row cannot be.
bool has_columns_of_keys(const LogicalTensor& t);

/// Reports whether a weight can be Q8_0: a matrix, or a stack of them if it is split. Biases
/// cannot.
bool fits_q8_0(const LogicalTensor& t, bool splits_stack);

/// Adds the plan's last tensor, a matrix, to the shard in blocks of Q8_0 or MXFP4.
void add_blocks(Plan& plan, PlannedShard& shard, Rest rest);

/// Reports whether the tensor has biases of the gates and ups of all experts of a layer.
bool is_bias_stack(std::string_view name);

/// Adds the plan's last tensor, a stack of experts, to the shard as single experts in `plain` or
/// in blocks. The biases of gates and ups become two tensors.
void add_single_experts(Plan& plan, PlannedShard& shard, std::span<const LogicalTensor> tensors,
                        const ModelConfig& config, safetensors::DType plain,
                        Rest rest = Rest::plain);

/// Adds the stack to the shard, and its members to the plan's tensors.
void add_stack(Plan& plan, PlannedShard& shard, const ExpertStack& stack, safetensors::DType plain);

/// Adds the scales of keys and values in the KV cache to a plan.
class PlannedCacheScales {
 public:
  /// Decides which scales the output gets. `type` is the cache type of the output; it is empty if
  /// the cache is not quantized. No scale is added if the model has some or if there are no
  /// statistics of keys and values. `statistics` may be null. `format` is null if nothing stays
  /// quantized; `type` is then the input's type, which the output does not declare. `found` must
  /// outlive this object.
  PlannedCacheScales(const ModelFolder& model, const CacheScales& found,
                     const Statistics* statistics, const CheckpointFormat* format,
                     std::string_view type);

  /// Reports whether this is a scale of a cache that the output does not declare. Loaders do not
  /// expect such a scale, so it is not written.
  bool leaves_out(const LogicalTensor& tensor) const;
  /// Returns a line that names the omitted scales, or an empty list.
  std::vector<std::string> lost() const;
  /// Adds the scales of attentions whose first tensor is in files [first_file, end_file).
  void add(std::size_t first_file, std::size_t end_file, PlannedShard& shard) const;
  /// Returns one line for each problem with the scales. `asked`: the user wants such a cache; it is
  /// not only declared by the input.
  std::vector<std::string> warnings(bool asked) const;

 private:
  struct Attention {
    std::string name;
    CacheAmax amax;
  };

  std::string type_;
  bool declared_ = false;  ///< the format declares `type_`
  const CheckpointFormat* format_;
  bool given_ = false;                  ///< the model has scales of keys and values
  const CacheScales* found_ = nullptr;  ///< the scales that are not written; null if all are
  bool unused_ = false;    ///< the statistics have scales, but those of the model are written
  std::size_t asked_ = 0;  ///< number of attentions in the statistics
  std::vector<std::vector<Attention>> all_;  ///< the scales to add, for each input file
  std::string absent_;  ///< an attention of the statistics that the model does not have
};

/// Returns the type of the output's KV cache: that of the recipe, otherwise the one that the input
/// declares. `format` may be null. A type that recipes do not know is copied only if the format
/// declares no types. Otherwise a recipe must replace it, and the model must not have scales of it.
/// Throws UnsupportedError if that is not so.
std::string cache_type_of_output(const ModelFolder& model, const CacheScales& found,
                                 const TransformOptions& options, const CheckpointFormat* format,
                                 const std::optional<Declared>& declared);

/// Renames the spec of a cache scale of the input as the format requires. It keeps its dtype.
void rename_cache_scale(const CheckpointFormat* format, const CacheScale& scale,
                        safetensors::TensorSpec& spec);

bool is_fp8(Action action);
/// Returns the FP8 module that the action makes; requires is_fp8(action).
Fp8Module fp8_module(Action action, const std::string& module);

/// Applies a recipe to the tensors of a model. Tensors that are usually excluded (norms, routers,
/// heads, towers) need a rule that names their kind or the exact tensor.
class RecipeChoice {
 public:
  /// Takes a recipe. Null changes nothing.
  RecipeChoice(const Recipe* recipe, const std::vector<std::string>& model_types);

  /// Applies the rules after `selector` has selected the tensor; its patterns have priority. Throws
  /// ValueError if a rule names a tensor that cannot be quantized.
  void apply(const safetensors::TensorInfo& tensor, const Selector& selector, Selection& selection);
  /// Returns the action of the tensor's rule, or nvfp4 if it has none.
  Action action(const Selection& selection) const;
  /// Reports whether a rule excludes the tensor.
  bool keeps(const Selection& selection) const;

  /// Throws ValueError if rules give different actions to parts of a layer that loaders fuse.
  void require_whole(std::span<const Choice> choices, const FuseRules& fused) const;

  std::vector<RecipeRuleReport> rules() const { return reports_; }
  /// Returns a line for each rule without an effect, and for each that quantizes modules which
  /// loaders do not expect.
  std::vector<std::string> warnings() const;

 private:
  std::string at(int rule) const;

  const Recipe* recipe_;
  std::vector<std::size_t> of_family_;  ///< indices of the rules for the model's family
  std::vector<RecipeRuleReport> reports_;
  /// Modules that each rule quantizes against the defaults.
  std::vector<std::vector<std::string>> forced_;
};

}  // namespace nvfp4::checkpoint
