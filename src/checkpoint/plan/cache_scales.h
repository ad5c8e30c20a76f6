#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"
#include "checkpoint/source/cache.h"

namespace nvfp4::checkpoint {

/// Adds to a plan what keys and values in the cache are divided by.
class PlannedCacheScales {
 public:
  /// `type`: empty for a cache that is not quantized, which has none. Nothing is added beside
  /// scales that the model has, nor without statistics of keys and values. `statistics` may be
  /// null, and `format` if nothing stays quantized: the `type` is then what the input declares, and
  /// the output does not. `found` must last as long.
  PlannedCacheScales(const ModelFolder& model, const CacheScales& found,
                     const Statistics* statistics, const CheckpointFormat* format,
                     std::string_view type);

  /// Whether it is a scale of a cache that the output does not declare: loaders do not expect it.
  bool leaves_out(const LogicalTensor& tensor) const;
  std::vector<std::string> lost() const;  ///< a line that says so, if any is
  /// Those of attentions whose first tensor is in files [first, end).
  void add(std::size_t first_file, std::size_t end_file, PlannedShard& shard) const;
  /// One line for each thing that is wrong with them. `asked`: the user wants such a cache, it is
  /// not only what the input says.
  std::vector<std::string> warnings(bool asked) const;

 private:
  struct Attention {
    std::string name;
    CacheAmax amax;
  };

  std::string type_;
  bool declared_ = false;  ///< by the format
  const CheckpointFormat* format_;
  bool given_ = false;                       ///< by the model
  const CacheScales* found_ = nullptr;       ///< that are left out
  bool unused_ = false;                      ///< what the statistics have
  std::size_t asked_ = 0;                    ///< attentions that the statistics have
  std::vector<std::vector<Attention>> all_;  ///< of each file
  std::string absent_;                       ///< an attention that is not in the model
};

/// What keys and values of the output are cached in: what the recipe says, else what the input has
/// declared. Throws UnsupportedError for any other type than those of a recipe, if the format
/// declares one at all, and for scales of another type beside a recipe. `format` may be null.
std::string cache_type_of_output(const ModelFolder& model, const CacheScales& found,
                                 const TransformOptions& options, const CheckpointFormat* format,
                                 const std::optional<Declared>& declared);

/// The spec of such a scale that stays, as the format names it.
void rename_cache_scale(const CheckpointFormat* format, const CacheScale& scale,
                        safetensors::TensorSpec& spec);

}  // namespace nvfp4::checkpoint
