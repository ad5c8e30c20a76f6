#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint.h"

/// Tensors put together by what they are ("self_attn.q_proj") and by the layer they are in.
namespace nvfp4::report {

/// Of "model.layers.3.mlp.experts.7.up_proj.weight": layer 3, kind "mlp.experts.*.up_proj". The
/// first number of a name is its layer; names without one have none, and are a kind of their own.
struct Place {
  std::string stem;  ///< "model.layers"
  std::optional<std::int64_t> layer;
  std::string kind;
};
Place place_of(std::string_view tensor);

/// Sums of squares, so that many tensors have one relative error.
struct ErrorSum {
  double squared_error = 0, squared_norm = 0;
  std::int64_t tensors = 0;

  void add(const TensorDifference& t);
  /// ‖a − b‖ / ‖a‖. NaN if a value was.
  double relative() const;
  double sqnr_db() const;
};

struct Kind {
  std::string name;
  ErrorSum total;
  std::map<std::int64_t, ErrorSum> layers;

  /// The layer with the largest error; none if there are no layers.
  std::optional<std::int64_t> worst_layer() const;
};

/// Largest norm first. Stems are part of the name where there are several ("visual.blocks").
std::vector<Kind> kinds_of(const CompareReport& report);

}  // namespace nvfp4::report
