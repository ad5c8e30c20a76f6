#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/family.h"
#include "checkpoint/match/pattern.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/matrix.h"

/// The selection of the tensors that are quantized, with a reason for each excluded tensor.
namespace nvfp4::checkpoint {

struct Selection {
  bool quantize = false;
  std::string kind;       ///< "linear", "expert", "stacked experts", "norm", ...
  std::string reason;     ///< why the tensor is excluded; "" if it is quantized
  bool ignored = false;   ///< excluded by the user's pattern alone
  bool included = false;  ///< included by the user's pattern
  bool linear = true;     ///< a loader may build this module as a linear layer
  int rule = -1;          ///< index of the last matching rule of the recipe; -1: none
};

/// Returns the selection by name, dtype, shape and family alone. `model_type`: from config.json, or
/// "".
Selection classify(const safetensors::TensorInfo& tensor, std::string_view model_type = {});

Selection classify(const safetensors::TensorInfo& tensor,
                   const std::vector<const Family*>& families);

/// Returns why a matrix with this number of rows is excluded unless the user includes it, or "".
/// Loaders have kernels for blocks of 16 rows. classify() does not apply this rule because it does
/// not handle stacks.
std::string row_obstacle(std::int64_t rows);

/// Reports whether the module computes decay and beta of linear attention, with a few rows for each
/// head. Loaders fuse such modules only with each other.
bool is_decay_projection(std::string_view name);

/// Reports whether the module computes keys and values of multi-head latent attention. Loaders
/// split its weight.
bool is_latent_projection(std::string_view name);

/// Returns N of a module in "layers.N". A number that overflows is the largest one.
std::optional<std::int64_t> layer_number(std::string_view module);

/// Reports whether the module selects experts, by its name in these families.
bool is_router(std::string_view module, const std::vector<const Family*>& families);

/// Reports whether the quantizers read the dtype. Other dtypes cannot be quantized.
bool is_float(safetensors::DType dtype);
/// Returns the dtype for a matrix. Requires is_float().
DType matrix_dtype(safetensors::DType dtype);

/// classify() combined with the user's patterns. `ignore` takes precedence over `include`, and both
/// over the defaults.
class Selector {
 public:
  /// Parses the patterns. `first_mtp_layer`: see ModelConfig. Throws ValueError for an invalid
  /// pattern.
  Selector(const std::vector<std::string>& ignore, const std::vector<std::string>& include,
           std::string_view model_type, std::optional<std::int64_t> first_mtp_layer = {},
           SharedBudget budget = std::make_shared<MatchBudget>());

  /// Returns the selection of a tensor. Throws ValueError if an exact include pattern names a
  /// tensor that cannot be quantized; globs and expressions skip such tensors. Throws also for an
  /// expression that takes too long.
  Selection select(const safetensors::TensorInfo& tensor);

  /// Returns why the tensor can never be quantized, or "" if it can.
  std::string obstacle_of(const safetensors::TensorInfo& tensor, const Selection& selection) const;

  /// Reports whether a pattern ignores the name, independent of the defaults.
  bool ignores(const std::string& name) const;

  /// Returns one line for each pattern without effect so far. It adds a line for each pattern that
  /// includes modules which loaders do not expect quantized.
  std::vector<std::string> warnings() const;

 private:
  SharedBudget budget_;
  PatternList ignore_, include_;
  std::vector<bool> ignore_used_, include_used_;
  /// The modules that each include pattern selects against the defaults.
  std::vector<std::vector<std::string>> forced_;
  std::vector<const Family*> families_;
  std::optional<std::int64_t> first_mtp_layer_;
};

/// Reports whether a tensor stays FP32 in a model that is loaded in BF16. Such tensors are router
/// biases, state space parameters and those that transformers loads as FP32 in this family.
/// `model_types`: from config.json.
bool stays_f32(std::string_view tensor, std::span<const std::string> model_types);

}  // namespace nvfp4::checkpoint
