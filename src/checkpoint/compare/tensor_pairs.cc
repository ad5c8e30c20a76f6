#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "checkpoint/compare/measured.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "checkpoint/source/cache.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

using Names = std::unordered_set<std::string_view>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Returns the pairs of `stacked` with the experts of `other`, or none unless every expert exists
/// and fits.
std::vector<TensorPair> unstack(const LogicalTensor& stacked, const CheckpointReader& own,
                                const ModelConfig& config, const CheckpointReader& other) try {
  std::vector<TensorPair> pairs;
  for (const WeightSlice& slice : slices_of(stacked, own.tensors(), config)) {
    const LogicalTensor* t = other.find(slice.module + ".weight");
    const std::vector<std::int64_t> shape{slice.rows, slice.cols};
    if (t == nullptr || t->shape != shape) return {};
    pairs.push_back(
        {t->name, shape, {&stacked, slice.offset, slice.row_stride, slice.col_stride}, {t}});
  }
  return pairs;
} catch (const ValueError&) {  // the orientation of the stack is unknown
  return {};
}

/// Reports whether the tensor is an MXFP4 stack [E, N, K] that the model has as [E, K, N].
bool is_turned(const LogicalTensor& t) {
  return t.names != nullptr && t.names->transposed_stacks && t.shape.size() == 3;
}
bool is_as_in_the_model(const LogicalTensor& t) { return t.is_plain() || t.transposed; }

/// Returns pairs of the matrices [N, K] of two stacks with opposite orientations, or none unless
/// they fit.
std::vector<TensorPair> pair_turned(const LogicalTensor& a, const LogicalTensor& b) {
  const bool turned = is_turned(a);
  const LogicalTensor &by_rows = turned ? a : b, &by_columns = turned ? b : a;
  if (!is_turned(by_rows) || !is_as_in_the_model(by_columns) ||
      by_columns.shape !=
          std::vector<std::int64_t>{by_rows.matrices(), by_rows.cols(), by_rows.rows()})
    return {};
  const std::int64_t rows = by_rows.rows(), cols = by_rows.cols();
  std::vector<TensorPair> pairs;
  for (std::int64_t e = 0; e < by_rows.matrices(); ++e) {
    const TensorSlice of_rows{&by_rows, e * rows * cols, cols, 1};
    const TensorSlice of_columns{&by_columns, e * rows * cols, 1, rows};
    pairs.push_back({fmt::format("{}[{}]", a.name, e),
                     {rows, cols},
                     turned ? of_rows : of_columns,
                     turned ? of_columns : of_rows});
  }
  return pairs;
}

/// Pairs the stacks of `a` in `left_a` with tensors of `b` in `left_b`, and removes both.
void pair_stacks(const CheckpointReader& a, const CheckpointReader& b, bool swapped, Names& left_a,
                 Names& left_b, std::vector<TensorPair>& out) {
  std::optional<ModelConfig> config;
  for (const LogicalTensor& t : a.tensors()) {
    if (!left_a.contains(t.name)) continue;
    if (classify(t.plain_info(), "").kind != "stacked experts") continue;
    if (!config) config = parse_model_config(a.config_text(), a.config_file());
    std::vector<TensorPair> pairs = unstack(t, a, *config, b);
    if (pairs.empty()) continue;
    left_a.erase(t.name);
    for (TensorPair& pair : pairs) {
      left_b.erase(pair.b.tensor->name);
      if (swapped) std::swap(pair.a, pair.b);
      out.push_back(std::move(pair));
    }
  }
}

/// Pairs cache scales, whose names differ between formats.
void pair_cache_scales(const CheckpointReader& a, const CheckpointReader& b, Names& left_a,
                       Names& left_b, std::vector<TensorPair>& out) {
  const CacheScales in_a(a.tensors(), {}, true), in_b(b.tensors(), {}, true);
  std::map<std::pair<std::string, bool>, const LogicalTensor*> of_b;
  for (const LogicalTensor& t : b.tensors())
    if (const auto scale = in_b.find(t); scale && left_b.contains(t.name))
      of_b.emplace(std::pair(scale->attention, scale->key), &t);
  for (const LogicalTensor& t : a.tensors()) {
    const auto scale = in_a.find(t);
    if (!scale || !left_a.contains(t.name)) continue;
    const auto other = of_b.find({scale->attention, scale->key});
    if (other == of_b.end()) continue;
    out.push_back({t.name, t.shape, {&t}, {other->second}});
    left_b.erase(other->second->name);
    left_a.erase(t.name);
  }
}

}  // namespace

void TensorSlice::read(std::int64_t begin, std::int64_t cols, std::span<float> out) const {
  if (whole()) return tensor->read(begin, out);
  const std::int64_t row = begin / cols;
  const auto rows = static_cast<std::int64_t>(out.size()) / cols;
  const std::int64_t start = first + row * row_stride;
  if (col_stride == 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      tensor->read(start + i * row_stride,
                   out.subspan(static_cast<std::size_t>(i * cols), static_cast<std::size_t>(cols)));
    return;
  }
  // A few columns at a time keep the written parts of a row close together.
  const std::int64_t at_once = std::min<std::int64_t>(16, cols);
  const std::int64_t length = (rows - 1) * row_stride + 1;
  thread_local std::vector<float> columns;
  columns.resize(static_cast<std::size_t>(at_once * length));
  for (std::int64_t j0 = 0; j0 < cols; j0 += at_once) {
    const std::int64_t band = std::min(at_once, cols - j0);
    for (std::int64_t j = 0; j < band; ++j)
      tensor->read(start + (j0 + j) * col_stride,
                   std::span(columns).subspan(static_cast<std::size_t>(j * length),
                                              static_cast<std::size_t>(length)));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < band; ++j)
        out[static_cast<std::size_t>(i * cols + j0 + j)] =
            columns[static_cast<std::size_t>(j * length + i * row_stride)];
  }
}

TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b) {
  TensorPairs out;
  Names left_a, left_b;
  for (const LogicalTensor& t : b.tensors())
    if (a.find(t.name) == nullptr) left_b.insert(t.name);
  for (const LogicalTensor& t : a.tensors()) {
    const LogicalTensor* other = b.find(t.name);
    if (other == nullptr) {
      left_a.insert(t.name);
      continue;
    }
    std::vector<TensorPair> turned = pair_turned(t, *other);
    if (!turned.empty())
      std::ranges::move(turned, std::back_inserter(out.pairs));
    else if (t.shape != other->shape)
      out.shape_mismatch.push_back(
          fmt::format("{}: {} and {}", t.name, shape_text(t.shape), shape_text(other->shape)));
    else if (t.form_name() != other->form_name() && !(t.readable() && other->readable()))
      out.shape_mismatch.push_back(fmt::format("{}: {} and {} cannot be compared", t.name,
                                               t.form_name(), other->form_name()));
    else
      out.pairs.push_back({t.name, t.shape, {&t}, {other}});
  }
  pair_stacks(a, b, false, left_a, left_b, out.pairs);
  pair_stacks(b, a, true, left_b, left_a, out.pairs);
  pair_cache_scales(a, b, left_a, left_b, out.pairs);
  for (const LogicalTensor& t : a.tensors())
    if (left_a.contains(t.name)) out.only_in_a.push_back(t.name);
  for (const LogicalTensor& t : b.tensors())
    if (left_b.contains(t.name)) out.only_in_b.push_back(t.name);
  return out;
}

}  // namespace nvfp4::checkpoint
