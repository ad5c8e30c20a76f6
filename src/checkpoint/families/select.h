#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/families/family.h"
#include "checkpoint/match/pattern.h"
#include "nvfp4/matrix.h"
#include "nvfp4/safetensors.h"

/// Which tensors are quantized, and why the others are not.
namespace nvfp4::checkpoint {

struct Selection {
  bool quantize = false;
  std::string kind;       ///< "linear", "expert", "stacked experts", "norm", ...
  std::string reason;     ///< why it is kept; empty when quantized
  bool ignored = false;   ///< by the user's pattern, or it would be quantized
  bool included = false;  ///< by the user's pattern
  bool linear = true;     ///< a loader may build this module as a linear layer
  int rule = -1;          ///< of the recipe, the last that fits; -1: none does
};

/// Decides by name, dtype, shape and family alone. `model_type` is config.json's, or empty.
Selection classify(const safetensors::TensorInfo& tensor, std::string_view model_type = {});

Selection classify(const safetensors::TensorInfo& tensor,
                   const std::vector<const Family*>& families);

/// Why a matrix of so many rows is kept unless the user includes it: loaders have kernels that take
/// N in blocks of 16. Empty if it is not. classify() does not ask, as it does not know stacks.
std::string row_obstacle(std::int64_t rows);

/// Whether it makes decay and beta of linear attention, a few rows for each head. Loaders fuse
/// these with one another alone.
bool is_decay_projection(std::string_view name);

/// Whether it makes keys and values of multi-head latent attention, which loaders take apart.
bool is_latent_projection(std::string_view name);

/// Reports whether the module chooses among experts, by its name in these families.
bool is_router(std::string_view module, const std::vector<const Family*>& families);

/// A float dtype that the quantizers read; nothing else can be quantized.
bool is_float(safetensors::DType dtype);
/// Requires is_float.
DType matrix_dtype(safetensors::DType dtype);

/// classify() and the user's patterns. `ignore` wins over `include`, which wins over the defaults.
class Selector {
 public:
  /// `first_mtp_layer`: see ModelConfig. Throws ValueError for an invalid pattern.
  Selector(const std::vector<std::string>& ignore, const std::vector<std::string>& include,
           std::string_view model_type, std::optional<std::int64_t> first_mtp_layer = {},
           SharedBudget budget = std::make_shared<MatchBudget>());

  /// Throws ValueError if an exact include pattern names a tensor that cannot be quantized. A glob
  /// or expression passes over those. Nor may an expression take too long.
  Selection select(const safetensors::TensorInfo& tensor);

  /// Why it can never be quantized, whatever asks for it; empty if it can.
  std::string obstacle_of(const safetensors::TensorInfo& tensor, const Selection& selection) const;

  /// By a pattern, whatever the defaults say.
  bool ignores(const std::string& name) const;

  /// One line for each pattern that had no effect so far, or that includes modules which loaders
  /// do not expect to be quantized.
  std::vector<std::string> warnings() const;

 private:
  SharedBudget budget_;
  PatternList ignore_, include_;
  std::vector<bool> ignore_used_, include_used_;
  std::vector<std::vector<std::string>> forced_;  ///< by each include pattern, against the defaults
  std::vector<const Family*> families_;
  std::optional<std::int64_t> first_mtp_layer_;
};

}  // namespace nvfp4::checkpoint
