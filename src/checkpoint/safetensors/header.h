#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::safetensors {

inline constexpr std::uint64_t kDataAlignment = 64;
inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// A file to write, with the ranges of its tensors in the given order. There may be hundreds of
/// thousands, so their specs are requested when they are needed.
class FilePlan {
 public:
  using SpecOf = std::function<TensorSpec(std::size_t)>;

  /// Plans the ranges. `spec` and `metadata` must outlive the plan. Throws ValueError that starts
  /// with `file`.
  FilePlan(std::size_t count, SpecOf spec, const Metadata& metadata, std::string file);

  std::size_t size() const { return ends_.size(); }
  std::string name(std::size_t i) const { return spec_(i).name; }
  std::uint64_t begin(std::size_t i) const { return data_begin_ + (i == 0 ? 0 : ends_[i - 1]); }
  std::uint64_t end(std::size_t i) const { return data_begin_ + ends_[i]; }
  std::uint64_t file_bytes() const { return data_begin_ + (ends_.empty() ? 0 : ends_.back()); }
  /// Writes everything before the data, the length and the header, in pieces.
  void write_start(const std::function<void(std::string_view)>& put) const;

 private:
  std::string metadata_text() const;
  std::string entry(std::size_t i) const;
  void require_unique() const;

  SpecOf spec_;
  const Metadata* metadata_;
  std::string file_;
  std::vector<std::uint64_t> ends_;  ///< relative to the start of the data
  std::uint64_t data_begin_ = 0;
};

/// The names of a tensor and of its file.
using IndexEntry = std::pair<std::string, std::string_view>;

/// Returns the text of index_json() for names in other memory, as there may be hundreds of
/// thousands. `entry(i)` is entry i of `count`, in the order of the names.
std::string index_json(std::uint64_t total_size, std::size_t count,
                       const std::function<IndexEntry(std::size_t)>& entry);

}  // namespace nvfp4::safetensors
