#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "checkpoint/match/pattern.h"
#include "report/report.h"

namespace nvfp4::report {
namespace {

constexpr std::string_view kWeight = ".weight";

/// Reports whether a part of a name is the number of a layer or an expert.
bool is_index(std::string_view part) { return part.size() <= 9 && checkpoint::is_number(part); }

void append(std::string& name, std::string_view part) {
  if (!name.empty()) name += '.';
  name += part;
}

/// Returns the error for comparisons. NaN is worse than every number.
double badness(double x) { return std::isnan(x) ? std::numeric_limits<double>::infinity() : x; }

}  // namespace

Place place_of(std::string_view tensor) {
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  Place place;
  while (!tensor.empty()) {
    const std::size_t dot = std::min(tensor.find('.'), tensor.size());
    const std::string_view part = tensor.substr(0, dot);
    tensor.remove_prefix(std::min(dot + 1, tensor.size()));
    if (!place.layer && is_index(part)) {
      std::int64_t layer = 0;
      std::from_chars(part.data(), part.data() + part.size(), layer);
      place.layer = layer;
      place.stem = std::exchange(place.kind, {});
    } else {
      append(place.kind, is_index(part) ? "*" : part);
    }
  }
  return place;
}

void ErrorSum::add(const ErrorSum& more) {
  squared_error += more.squared_error;
  squared_norm += more.squared_norm;
  tensors += more.tensors;
}

double ErrorSum::relative() const {
  return squared_error == 0 ? 0 : std::sqrt(squared_error / squared_norm);
}

double ErrorSum::sqnr_db() const {
  return squared_error == 0 ? std::numeric_limits<double>::infinity()
                            : 10 * std::log10(squared_norm / squared_error);
}

std::optional<std::int64_t> Kind::worst_layer() const {
  const auto worst = std::ranges::max_element(
      layers, {}, [](const auto& layer) { return badness(layer.second.relative()); });
  return worst == layers.end() ? std::nullopt : std::optional(worst->first);
}

TensorErrors errors_of(const CompareReport& report) {
  TensorErrors errors;
  for (const TensorDifference& t : report.tensors)
    errors[t.name].add({t.squared_error, t.squared_norm, 1});
  return errors;
}

std::vector<Kind> kinds_of(const TensorErrors& errors) {
  std::set<std::string> stems;
  std::map<std::pair<std::string, std::string>, Kind> found;
  for (const auto& [tensor, error] : errors) {
    const Place place = place_of(tensor);
    if (place.layer) stems.insert(place.stem);
    Kind& kind = found[{place.stem, place.kind}];
    kind.total.add(error);
    if (place.layer) kind.layers[*place.layer].add(error);
  }
  std::vector<Kind> kinds;
  for (auto& [key, kind] : found) {
    const bool stem_says_which = stems.size() > 1 && !kind.layers.empty() && !key.first.empty();
    kind.name = stem_says_which ? key.first + ".*." + key.second : key.second;
    kinds.push_back(std::move(kind));
  }
  std::ranges::stable_sort(kinds, [](const Kind& a, const Kind& b) {
    return badness(a.total.squared_norm) > badness(b.total.squared_norm);
  });
  return kinds;
}

}  // namespace nvfp4::report
