#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// Texts of which many are equal: each is kept once, as long as this is.
class TextPool {
 public:
  std::string_view keep(std::string_view text) {
    const auto found = texts_.find(text);
    return found != texts_.end() ? *found : *texts_.emplace(text).first;
  }

 private:
  std::set<std::string, std::less<>> texts_;
};

}  // namespace nvfp4::checkpoint
