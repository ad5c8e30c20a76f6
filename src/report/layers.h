#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"

/// Tensors grouped by kind ("self_attn.q_proj") and by layer.
namespace nvfp4::report {

/// The kind and layer of a tensor. "model.layers.3.mlp.experts.7.up_proj.weight" has layer 3 and
/// kind "mlp.experts.*.up_proj". The layer is the first number of a name. A name without a number
/// has no layer and is its own kind.
struct Place {
  std::string stem;  ///< such as "model.layers"
  std::optional<std::int64_t> layer;
  std::string kind;
};
Place place_of(std::string_view tensor);

/// Sums of squares that combine tensors to one relative error.
struct ErrorSum {
  double squared_error = 0, squared_norm = 0;
  std::int64_t tensors = 0;

  void add(const ErrorSum& more);
  /// Returns ‖a − b‖ / ‖a‖, or NaN if a value was NaN.
  double relative() const;
  double sqnr_db() const;
};

/// The error of each tensor, by its name.
using TensorErrors = std::map<std::string, ErrorSum>;
TensorErrors errors_of(const CompareReport& report);

struct Kind {
  std::string name;
  ErrorSum total;
  std::map<std::int64_t, ErrorSum> layers;

  /// Returns the layer with the largest error, or none if there are no layers.
  std::optional<std::int64_t> worst_layer() const;
};

/// Returns the kinds, largest norm first. If there are several stems, names contain them
/// ("visual.blocks").
std::vector<Kind> kinds_of(const TensorErrors& errors);

}  // namespace nvfp4::report
