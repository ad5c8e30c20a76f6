#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/names.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

/// Returns the function that reads a number of the architecture, or 0 without its key.
auto numbers_of(const Header& header, const Architecture& architecture) {
  return [&](std::string_view key) {
    return header.integer(fmt::format("{}.{}", architecture.name, key)).value_or(0);
  };
}

LinearHeads heads_of(const Header& header, const Architecture& architecture) {
  const auto number = numbers_of(header, architecture);
  return {number("ssm.group_count"), number("ssm.time_step_rank"), number("ssm.state_size")};
}

LatentHeads latent_heads_of(const Header& header, const Architecture& architecture) {
  const auto number = numbers_of(header, architecture);
  const auto length = [&](std::string_view key) {  // no difference overflows
    return std::clamp<std::int64_t>(number(key), 0, std::numeric_limits<std::int32_t>::max());
  };
  return {number("attention.head_count"), number("attention.kv_lora_rank"),
          length("attention.key_length_mla") - length("rope.dimension_count"),
          number("attention.value_length_mla")};
}

Order value_heads(const Header& header, const Architecture& architecture, const TensorInfo& t,
                  const Place& place, const std::string& file) {
  const LinearHeads heads = heads_of(header, architecture);
  const bool by_columns = place.heads == Heads::columns;
  const std::int64_t size = t.shape.empty() ? 0 : by_columns ? t.shape.back() : t.shape[0];
  const std::optional<Order> order = heads.order(place.heads, size);
  require<FormatError>(order.has_value(),
                       "{}: tensor '{}': {} {}, which are not of {} heads of values and {} of "
                       "keys, as '{}.ssm.time_step_rank' and 'ssm.group_count' say",
                       file, printable(t.name), size, by_columns ? "columns" : "rows", heads.values,
                       heads.keys, architecture.name);
  return *order;
}

Order rotary_rows(const Header& header, const Architecture& architecture, const TensorInfo& t,
                  const Place& place, const std::string& file) {
  if (!architecture.interleaves || (!place.query && !place.key)) return {};
  const std::string key =
      fmt::format("{}.attention.head_count{}", architecture.name, place.key ? "_kv" : "");
  auto heads = header.integer(key, static_cast<std::size_t>(place.layer));
  if (!heads && place.key)
    heads = header.integer(fmt::format("{}.attention.head_count", architecture.name));
  const std::int64_t rows = t.shape.empty() ? 0 : t.shape[0];
  require<FormatError>(heads.has_value(), "{}: has no key '{}'", file, key);
  require<FormatError>(*heads > 0 && *heads <= rows / 2 && rows % (2 * *heads) == 0,
                       "{}: tensor '{}': {} rows, must be an even number for each of '{}' = {}",
                       file, printable(t.name), rows, key, *heads);
  return rotary_order(rows / *heads);
}

}  // namespace

std::optional<safetensors::DType> dtype_of(const Type& type) {
  using safetensors::DType;
  switch (type.id) {
    case kF32:
      return DType::f32;
    case kF16:
      return DType::f16;
    case kBF16:
      return DType::bf16;
    case kF64:
      return DType::f64;
    case kI8:
      return DType::i8;
    case kI16:
      return DType::i16;
    case kI32:
      return DType::i32;
    case kI64:
      return DType::i64;
    default:
      return std::nullopt;
  }
}

Origin origin_of(const Header& header, const Architecture& architecture, const TensorInfo& t,
                 const std::string& model_name, const std::string& file) {
  const auto place = place_of(architecture, model_name);
  Origin origin;
  if (is_split(place->heads)) return origin;
  origin.change = place->change;
  origin.rows = place->heads == Heads::none ? rotary_rows(header, architecture, t, *place, file)
                                            : value_heads(header, architecture, t, *place, file);
  if (place->heads == Heads::columns) std::swap(origin.rows, origin.columns);
  return origin;
}

std::optional<Split> split_of(const Header& header, const Architecture& architecture,
                              const TensorInfo& t, const std::string& model_name,
                              const std::string& file) {
  const std::vector<Place> places = places_of(architecture, model_name);
  const auto place = std::ranges::find(places, t.name, &Place::file_name);
  if (place == places.end() || !is_split(place->heads)) return std::nullopt;
  std::optional<Split> split;
  std::string sizes;
  if (is_latent(place->heads)) {
    const LatentHeads heads = latent_heads_of(header, architecture);
    split = heads.split(place->heads);
    sizes = fmt::format("{} heads with keys of {} and values of {} from {} latent numbers, as '{}.",
                        heads.heads, heads.key, heads.value, heads.latent, architecture.name) +
            "attention.key_length_mla', 'value_length_mla' and 'kv_lora_rank' say";
  } else {
    const LinearHeads heads = heads_of(header, architecture);
    split = heads.split(place->heads);
    sizes = fmt::format(
        "{} heads of values and {} of keys, as '{}.ssm.time_step_rank' and "
        "'ssm.group_count' say",
        heads.values, heads.keys, architecture.name);
  }
  const std::size_t at = split && split->transposed ? 1 : t.shape.size() - 1;
  const bool fits = split && at < t.shape.size() && t.shape == split->shape(t.shape[at]);
  if (!fits) require_whole(header, architecture, file);  // which says more
  require<FormatError>(fits, "{}: tensor '{}': [{}], must have the rows of {}", file,
                       printable(t.name), fmt::join(t.shape, ", "), sizes);
  const auto plain = {kF32, kF16, kBF16};
  const bool is_held = split->transposed ? std::ranges::find(plain, t.type->id) != plain.end()
                                         : t.type->id != kNvfp4 && t.type->id != kMxfp4;
  require<UnsupportedError>(is_held, "{}: tensor '{}': {}, must have another type", file,
                            printable(t.name), t.type->name);
  return split;
}

void count_columns(const TensorInfo& t, Origin& origin, const std::string& file) {
  if (!origin.columns.moves()) return;
  const auto heads = origin.columns.a * origin.columns.b;
  const auto units = static_cast<std::int64_t>(origin.row_units);
  require<UnsupportedError>(units > 0 && units % heads == 0,
                            "{}: tensor '{}': {} columns, must be blocks of {} for each of {} "
                            "heads",
                            file, printable(t.name), t.shape.back(), t.type->name, heads);
  origin.columns.d = units / heads;
}

}  // namespace nvfp4::gguf
