#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/io/tensor_table.h"
#include "nvfp4/quantize.h"

/// Formats store a global scale as what one multiplies or as what one divides by. A reciprocal
/// taken twice may be off by one unit in the last place, so that a conversion there and back would
/// change a scale. Of a multiplier the divisor is therefore that neighbour of its reciprocal, if
/// there is one, of which the multiplier is the reciprocal again, which is what loaders take. Where
/// there is none, a shard's metadata keeps the bits of the other sense.
namespace nvfp4::checkpoint {

inline constexpr const char* kReciprocalsKey = "nvfp4.reciprocals";

/// What the metadata of files keeps. Each file's is parsed once: it may be of many tensors.
class KeptSenses {
 public:
  /// Both senses of the stored number `value`, element `index` of `t`, by the metadata if it has
  /// it. The file must stay where it is.
  GlobalScale both(const StoredTensor& t, std::size_t index, float value, bool divisors);

 private:
  const nlohmann::json* bits_of(const StoredTensor& t);

  std::map<const TensorFile*, nlohmann::json> parsed_;
};

/// Collects what must be kept, for one shard.
class Reciprocals {
 public:
  void add(const std::string& tensor, const GlobalScale& scale, bool divisors);
  bool empty() const { return bits_.empty(); }
  std::string text() const;

 private:
  std::map<std::string, std::uint32_t> bits_;
};

}  // namespace nvfp4::checkpoint
