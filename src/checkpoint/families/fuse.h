#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// Which siblings must share one global scale because loaders fuse them into one matrix.
/// Source: vLLM, SGLang and TensorRT-LLM read one scale for all of a fused matrix.
class FuseRules {
 public:
  /// `extra`: comma-separated last name components, "w1,w3", besides those of any family and those
  /// of the families of `model_types`. Sets that overlap become one. Throws
  /// ValueError for fewer than two components, or one that is empty or dotted.
  explicit FuseRules(const std::vector<std::string>& extra,
                     std::span<const std::string> model_types = {});

  /// Modules of one parent with equal keys share their scales. A module that shares with nothing
  /// has its own name as key.
  std::string key(std::string_view module) const;

  /// Takes note of a quantized module, for warnings().
  void see(std::string_view module);
  /// One line for each of `extra` that names no module seen so far.
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

}  // namespace nvfp4::checkpoint
