#include "checkpoint/tensor_pairs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Names = std::unordered_set<std::string_view>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "x.experts.gate_up_proj" -> {"x.experts.", {"gate_proj", "up_proj"}}; empty if it is no stack.
struct Stack {
  std::string prefix;
  std::vector<std::string> parts;
};
Stack stack_of(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !name.substr(0, dot).ends_with("experts")) return {};
  const std::string part(name.substr(dot + 1));
  if (part == "gate_up_proj")
    return {std::string(name.substr(0, dot + 1)), {"gate_proj", "up_proj"}};
  return {std::string(name.substr(0, dot + 1)), {part}};
}

/// The pairs of `stacked` with the experts of `other`; none unless every expert is there and fits.
std::vector<TensorPair> unstack(const LogicalTensor& stacked, const CheckpointReader& other) {
  const Stack stack = stack_of(stacked.name);
  if (stack.parts.empty() || stacked.shape.size() != 3) return {};
  const std::int64_t experts = stacked.shape[0], rows = stacked.shape[1], cols = stacked.shape[2];
  std::vector<TensorPair> pairs;
  for (std::int64_t e = 0; e < experts; ++e) {
    std::int64_t filled = 0;  // rows of this expert, or columns if it is stored transposed
    bool straight = true, transposed = !stacked.is_nvfp4();
    const std::size_t begin = pairs.size();
    for (const std::string& part : stack.parts) {
      const LogicalTensor* t = other.find(fmt::format("{}{}.{}.weight", stack.prefix, e, part));
      if (t == nullptr || t->shape.size() != 2) return {};
      straight &= t->shape[1] == cols;
      transposed &= t->shape[1] == rows;
      pairs.push_back({t->name, t->shape, {&stacked, filled, 0}, {t, 0, 0}});
      filled += t->shape[0];
    }
    straight &= filled == rows;
    transposed &= filled == cols;
    if (!straight && !transposed) return {};
    for (std::size_t i = begin; i < pairs.size(); ++i) {
      TensorSlice& slice = pairs[i].a;
      slice.transposed_stride = straight ? 0 : cols;
      slice.first = e * rows * cols + slice.first * (straight ? cols : 1);
    }
  }
  return pairs;
}

/// Pairs the stacks of `a` in `left_a` with tensors of `b` in `left_b`, and takes both out.
void pair_stacks(const CheckpointReader& a, const CheckpointReader& b, bool swapped, Names& left_a,
                 Names& left_b, std::vector<TensorPair>& out) {
  for (const LogicalTensor& t : a.tensors()) {
    if (!left_a.contains(t.name)) continue;
    std::vector<TensorPair> pairs = unstack(t, b);
    if (pairs.empty()) continue;
    left_a.erase(t.name);
    for (TensorPair& pair : pairs) {
      left_b.erase(pair.b.tensor->name);
      if (swapped) std::swap(pair.a, pair.b);
      out.push_back(std::move(pair));
    }
  }
}

}  // namespace

void TensorSlice::read(std::int64_t begin, std::int64_t cols, std::span<float> out) const {
  if (transposed_stride == 0) return tensor->read(first + begin, out);
  // Whole rows only: see the chunks of compare.
  const std::int64_t row = begin / cols;
  const auto rows = static_cast<std::int64_t>(out.size()) / cols;
  thread_local std::vector<float> column;
  column.resize(static_cast<std::size_t>(rows));
  for (std::int64_t j = 0; j < cols; ++j) {
    tensor->read(first + j * transposed_stride + row, column);
    for (std::int64_t i = 0; i < rows; ++i)
      out[static_cast<std::size_t>(i * cols + j)] = column[static_cast<std::size_t>(i)];
  }
}

TensorPairs pair_tensors(const CheckpointReader& a, const CheckpointReader& b) {
  TensorPairs out;
  Names left_a, left_b;
  for (const LogicalTensor& t : b.tensors())
    if (a.find(t.name) == nullptr) left_b.insert(t.name);
  for (const LogicalTensor& t : a.tensors()) {
    const LogicalTensor* other = b.find(t.name);
    if (other == nullptr)
      left_a.insert(t.name);
    else if (t.shape != other->shape)
      out.shape_mismatch.push_back(
          fmt::format("{}: {} and {}", t.name, shape_text(t.shape), shape_text(other->shape)));
    else if (t.form_name() != other->form_name() && !(t.readable() && other->readable()))
      out.shape_mismatch.push_back(fmt::format("{}: {} and {} cannot be compared", t.name,
                                               t.form_name(), other->form_name()));
    else
      out.pairs.push_back({t.name, t.shape, {&t, 0, 0}, {other, 0, 0}});
  }
  pair_stacks(a, b, false, left_a, left_b, out.pairs);
  pair_stacks(b, a, true, left_b, left_a, out.pairs);
  for (const LogicalTensor& t : a.tensors())
    if (left_a.contains(t.name)) out.only_in_a.push_back(t.name);
  for (const LogicalTensor& t : b.tensors())
    if (left_b.contains(t.name)) out.only_in_b.push_back(t.name);
  return out;
}

}  // namespace nvfp4::checkpoint
