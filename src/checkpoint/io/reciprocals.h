#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/io/tensor_file.h"
#include "nvfp4/quantize.h"

/// Inverses of global scales. A format stores the multiplier or the divisor. Two reciprocals in a
/// row may be off by one unit in the last place. A conversion back could then change a scale. The
/// divisor of a multiplier is therefore a neighbour of its reciprocal whose reciprocal, as loaders
/// take it, is the multiplier. If there is none, the metadata of the shard has the bits of the
/// other number.
namespace nvfp4::checkpoint {

inline constexpr const char* kReciprocalsKey = "nvfp4.reciprocals";

/// Reads the numbers that the metadata of files holds. The metadata of each file is parsed once.
class KeptSenses {
 public:
  /// Returns multiplier and divisor for the stored number `value`, element `index` of `t`. The
  /// metadata has priority. The file must not move in memory.
  GlobalScale both(const StoredTensor& t, std::size_t index, float value, bool divisors);

 private:
  const nlohmann::json* bits_of(const StoredTensor& t);

  std::map<const TensorFile*, nlohmann::json> parsed_;
};

/// Collects the numbers that the metadata of one shard must hold.
class Reciprocals {
 public:
  void add(const std::string& tensor, const GlobalScale& scale, bool divisors);
  bool empty() const { return bits_.empty(); }
  std::string text() const;

 private:
  std::map<std::string, std::uint32_t> bits_;
};

}  // namespace nvfp4::checkpoint
