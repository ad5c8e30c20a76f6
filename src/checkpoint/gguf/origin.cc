#include "checkpoint/gguf/origin.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

LinearHeads heads_of(const Header& header, const Architecture& architecture) {
  const auto number = [&](std::string_view key) {
    return header.integer(fmt::format("{}.{}", architecture.name, key)).value_or(0);
  };
  return {number("ssm.group_count"), number("ssm.time_step_rank"), number("ssm.state_size")};
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

std::vector<Run> runs_of(const Header& header, const Architecture& architecture,
                         const TensorInfo& t, const std::string& model_name,
                         const std::string& file) {
  const std::vector<Place> places = places_of(architecture, model_name);
  const auto place = std::ranges::find(places, t.name, &Place::file_name);
  if (place == places.end() || !is_split(place->heads)) return {};
  const LinearHeads heads = heads_of(header, architecture);
  const std::optional<std::vector<Run>> runs = heads.runs(place->heads);
  require<FormatError>(
      runs && t.shape.size() == 2 && t.shape[0] == runs->back().to + heads.keys * runs->back().size,
      "{}: tensor '{}': [{}], must have the rows of {} heads of values and {} of "
      "keys, as '{}.ssm.time_step_rank' and 'ssm.group_count' say",
      file, printable(t.name), fmt::join(t.shape, ", "), heads.values, heads.keys,
      architecture.name);
  require<UnsupportedError>(t.type->id != kNvfp4, "{}: tensor '{}': {}, must have another type",
                            file, printable(t.name), t.type->name);
  return *runs;
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
