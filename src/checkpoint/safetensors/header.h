#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nvfp4/safetensors.h"

namespace nvfp4::safetensors {

inline constexpr std::uint64_t kDataAlignment = 64;
inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// The start of a file to write, and where its tensors lie.
struct FilePlan {
  struct Tensor {
    std::string name;  ///< for messages
    std::uint64_t begin = 0, bytes = 0;
  };
  std::string start;            ///< length and header: everything before the data
  std::vector<Tensor> tensors;  ///< in the order given
  std::uint64_t file_bytes = 0;
};

/// Throws ValueError that starts with `file`.
FilePlan plan_file(const std::vector<TensorSpec>& tensors, const Metadata& metadata,
                   const std::string& file);

/// A tensor and its file.
using IndexEntry = std::pair<std::string_view, std::string_view>;

/// index_json() of names that lie elsewhere: there may be hundreds of thousands.
std::string index_json(std::uint64_t total_size, std::vector<IndexEntry> entries);

}  // namespace nvfp4::safetensors
