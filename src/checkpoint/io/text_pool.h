#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace nvfp4::checkpoint {

/// A pool of texts, many of them equal. It stores each once and must outlive the views.
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
