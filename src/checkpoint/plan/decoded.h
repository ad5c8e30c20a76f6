#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/plan/plan.h"
#include "checkpoint/plan/supply.h"

/// The tensors that become plain, and their places in the output.
namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
