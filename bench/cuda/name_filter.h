#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/error.h"

namespace nvfp4::bench {

/// The rows of a benchmark that the command line selects. These are the rows whose names contain
/// one of the words, or all rows if there are no words.
class NameFilter {
 public:
  void add(std::string_view word) {
    if (word.empty() || word.starts_with("--"))
      throw ValueError(fmt::format("unknown argument \"{}\"", word));
    words_.push_back({std::string(word)});
  }

  bool wanted(std::string_view name) {
    bool found = words_.empty();
    for (Word& word : words_) {
      const bool here = name.find(word.text) != std::string_view::npos;
      word.found |= here;
      found |= here;
    }
    return found;
  }

  /// Throws ValueError for a word that no name contains, after all names were tested.
  void require_found() const {
    for (const Word& word : words_)
      if (!word.found)
        throw ValueError(
            fmt::format("\"{}\" is in the name of no row that was measured", word.text));
  }

 private:
  struct Word {
    std::string text;
    bool found = false;
  };
  std::vector<Word> words_;
};

}  // namespace nvfp4::bench
