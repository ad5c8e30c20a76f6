#include "checkpoint/io/reciprocals.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/io/json_text.h"

namespace nvfp4::checkpoint {
namespace {

/// Reports whether two numbers differ by no more than rounding.
bool agree(float a, float b) {
  return std::isfinite(a) && std::isfinite(b) && std::fabs(a - b) <= std::fabs(b) * 0x1p-21f;
}

/// Returns the number whose reciprocal is `value`: the nearest one, or a neighbour of it.
float divisor_of(float value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nearest = 1.0f / value;
  for (const float near :
       {nearest, std::nextafter(nearest, kInfinity), std::nextafter(nearest, 0.0f)})
    if (1.0f / near == value) return near;
  return nearest;
}

/// Returns the number that is not stored, derived without metadata.
float derived(float value, bool divisors) { return divisors ? 1.0f / value : divisor_of(value); }

}  // namespace

/// Returns the stored bits of a tensor, or null if there are none.
const nlohmann::json* KeptSenses::bits_of(const StoredTensor& t) {
  const auto [it, fresh] = parsed_.try_emplace(t.file);
  nlohmann::json& json = it->second;
  if (fresh)
    if (const auto text = t.file->metadata().find(kReciprocalsKey);
        text != t.file->metadata().end())
      json = parse_json_or_null<nlohmann::json>(text->second);
  if (!json.is_object()) return nullptr;
  const auto entry = json.find(t.info->name);
  return entry == json.end() || !entry->is_number_unsigned() ? nullptr : &*entry;
}

GlobalScale KeptSenses::both(const StoredTensor& t, std::size_t index, float value, bool divisors) {
  float other = derived(value, divisors);
  if (index == 0)
    if (const nlohmann::json* bits = bits_of(t)) {
      const float kept = bits_float(bits->get<std::uint32_t>());
      if (agree(kept, other)) other = kept;
    }
  return divisors ? GlobalScale{.multiplier = other, .divisor = value}
                  : GlobalScale{.multiplier = value, .divisor = other};
}

void Reciprocals::add(const std::string& tensor, const GlobalScale& scale, bool divisors) {
  const float stored = divisors ? scale.divisor : scale.multiplier;
  const float other = divisors ? scale.multiplier : scale.divisor;
  if (float_bits(derived(stored, divisors)) != float_bits(other)) bits_[tensor] = float_bits(other);
}

std::string Reciprocals::text() const { return nlohmann::json(bits_).dump(); }

}  // namespace nvfp4::checkpoint
