#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/experts.h"

namespace nvfp4::checkpoint {

/// The rules for siblings that must share one global scale, because loaders fuse them into one
/// matrix.
/// Source: vLLM, SGLang and TensorRT-LLM read one scale for a whole fused matrix.
class FuseRules {
 public:
  /// Adds `extra` to the common sets and to those of the families of `model_types`. An entry of
  /// `extra` has last name components separated by commas: "w1,w3". Sets that overlap become one.
  /// Throws ValueError for fewer than two components and for an empty component or one with a dot.
  explicit FuseRules(const std::vector<std::string>& extra,
                     std::span<const std::string> model_types = {});

  /// Returns the key of a module. Modules of one parent with equal keys share their scales. A
  /// module without partners has its own name as key.
  std::string key(std::string_view module) const;

  /// Records a quantized module for warnings().
  void see(std::string_view module);
  /// Returns one line for each entry of `extra` that matches no recorded module.
  std::vector<std::string> warnings() const;

 private:
  struct Extra {
    std::string text;
    std::set<std::string, std::less<>> names;
    bool used = false;
  };
  void add(const std::vector<std::string>& names);
  std::map<std::string, int, std::less<>> set_of_;
  int next_ = 0;
  std::vector<Extra> extra_;
};

/// Excludes all layers that are fused with a layer whose number of rows excludes it. Layers in the
/// user's patterns stay quantized.
void keep_fused_layers_whole(std::span<const Choice> choices, const FuseRules& rules);

}  // namespace nvfp4::checkpoint
