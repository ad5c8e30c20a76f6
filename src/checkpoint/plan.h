#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/experts.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/schemes/scheme.h"
#include "checkpoint/select.h"
#include "nvfp4/checkpoint.h"

/// Everything about the output but its bytes, known before the first one is written.
namespace nvfp4::checkpoint {

inline constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// One matrix to quantize.
struct Unit {
  std::size_t tensor = 0;  ///< in Plan::tensors
  WeightSlice slice;
  std::size_t group = 0;  ///< in Plan::groups
  /// Tensors of the output shard; kNone where the scheme has no such tensor.
  std::size_t codes = kNone, scales = kNone, weight_global = kNone, input_global = kNone;
};

struct PlannedTensor {
  const safetensors::TensorInfo* info = nullptr;
  std::size_t shard = 0;
  Selection selection;
  std::size_t first_unit = 0, units = 0;  ///< if quantized
  std::size_t copy = kNone;               ///< tensor of the output shard, if kept
  std::uint64_t bytes_after = 0;
};

struct PlannedShard {
  std::string file;
  std::vector<safetensors::TensorSpec> specs;
  safetensors::Metadata metadata;
  std::size_t first_tensor = 0, tensors = 0;
};

/// Units that share one weight global scale and one input global scale.
struct Group {
  std::vector<std::size_t> units;
  float input_amax = 0;
};

struct Plan {
  std::vector<PlannedShard> shards;
  std::vector<PlannedTensor> tensors;  ///< shard by shard, in the order of their bytes
  std::vector<Unit> units;             ///< in the order of their tensors
  std::vector<Group> groups;
  std::vector<std::string> warnings;
  std::string config_json, hf_quant_json;  ///< contents; hf_quant_json may be empty
  safetensors::Index index;
  std::optional<std::uint64_t> input_amax_fingerprint;  ///< of the file, which is read only once
};

/// Throws ValueError, FormatError, UnsupportedError.
Plan make_plan(const ModelFolder& model, const QuantizeCheckpointOptions& options);

}  // namespace nvfp4::checkpoint
