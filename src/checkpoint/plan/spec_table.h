#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {

/// A table of TensorSpecs in a tenth of the memory. The tensors of a weight share the beginning of
/// their names, and a model has few shapes.
class SpecTable {
 public:
  std::size_t size() const { return entries_.size(); }
  void push_back(const safetensors::TensorSpec& spec);
  safetensors::TensorSpec operator[](std::size_t i) const { return {name(i), dtype(i), shape(i)}; }
  std::string name(std::size_t i) const;
  safetensors::DType dtype(std::size_t i) const {
    return static_cast<safetensors::DType>(entries_[i].dtype);
  }
  const std::vector<std::int64_t>& shape(std::size_t i) const { return shapes_[entries_[i].shape]; }
  std::uint64_t bytes(std::size_t i) const;
  /// Compares two names, also of two tables. The result is negative, 0 or positive.
  int compare_names(std::size_t i, const SpecTable& other, std::size_t j) const;
  /// Moves entry order[i] to place i.
  void reorder(std::span<const std::uint32_t> order);

 private:
  struct Entry {
    std::uint32_t begin = 0;  ///< offset in text_
    std::uint32_t size : 24 = 0;
    std::uint32_t dtype : 8 = 0;
    std::uint32_t suffix = 0, shape = 0;  ///< indices in suffixes_ and shapes_
  };
  template <class T>
  static std::uint32_t number_of(const T& value, std::map<T, std::uint32_t>& numbers,
                                 std::vector<T>& values);
  std::string_view stem(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.size);
  }

  std::vector<Entry> entries_;
  std::string text_;                   ///< the names up to their last dots
  std::vector<std::string> suffixes_;  ///< the last components, with the dot
  std::vector<std::vector<std::int64_t>> shapes_;
  std::map<std::string, std::uint32_t> suffix_numbers_;
  std::map<std::vector<std::int64_t>, std::uint32_t> shape_numbers_;
};

}  // namespace nvfp4::checkpoint
