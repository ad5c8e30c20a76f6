#pragma once

#include <string>
#include <vector>

#include "checkpoint/plan/plan.h"
#include "checkpoint/source/cache.h"

namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
