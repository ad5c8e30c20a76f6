#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/plan/input_amax.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/plan/supply.h"

namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
