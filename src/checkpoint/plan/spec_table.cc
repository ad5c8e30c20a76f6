#include <algorithm>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

template <class T>
std::uint32_t SpecTable::number_of(const T& value, std::map<T, std::uint32_t>& numbers,
                                   std::vector<T>& values) {
  const auto [it, fresh] = numbers.try_emplace(value, static_cast<std::uint32_t>(values.size()));
  if (fresh) values.push_back(value);
  return it->second;
}

void SpecTable::push_back(const safetensors::TensorSpec& spec) {
  const std::string_view name = spec.name;
  const std::string_view before = name.substr(0, std::min(name.rfind('.'), name.size()));
  Entry entry;
  entry.dtype = static_cast<std::uint8_t>(spec.dtype);
  entry.suffix = number_of(std::string(name.substr(before.size())), suffix_numbers_, suffixes_);
  entry.shape = number_of(spec.shape, shape_numbers_, shapes_);
  if (!entries_.empty() && stem(entries_.back()) == before) {
    entry.begin = entries_.back().begin;
  } else {
    entry.begin = static_cast<std::uint32_t>(text_.size());
    text_ += before;
  }
  entry.size = static_cast<std::uint32_t>(before.size()) & 0xFFFFFF;
  entries_.push_back(entry);
}

std::string SpecTable::name(std::size_t i) const {
  std::string name(stem(entries_[i]));
  return name += suffixes_[entries_[i].suffix];
}

std::uint64_t SpecTable::bytes(std::size_t i) const {
  auto bits = static_cast<std::uint64_t>(safetensors::dtype_bits(dtype(i)));
  for (const std::int64_t extent : shape(i)) bits *= static_cast<std::uint64_t>(extent);
  return bits / 8;
}

int SpecTable::compare_names(std::size_t i, const SpecTable& other, std::size_t j) const {
  std::string_view a = stem(entries_[i]), a_rest = suffixes_[entries_[i].suffix];
  std::string_view b = other.stem(other.entries_[j]),
                   b_rest = other.suffixes_[other.entries_[j].suffix];
  while (true) {
    const std::size_t common = std::min(a.size(), b.size());
    if (const int order = a.substr(0, common).compare(b.substr(0, common)); order != 0)
      return order;
    a.remove_prefix(common);
    b.remove_prefix(common);
    if (a.empty()) a = std::exchange(a_rest, {});
    if (b.empty()) b = std::exchange(b_rest, {});
    if (a.empty() || b.empty()) return static_cast<int>(!a.empty()) - static_cast<int>(!b.empty());
  }
}

void SpecTable::reorder(std::span<const std::uint32_t> order) {
  std::vector<Entry> sorted;
  sorted.reserve(order.size());
  for (const std::uint32_t i : order) sorted.push_back(entries_[i]);
  entries_ = std::move(sorted);
  text_.shrink_to_fit();
}

}  // namespace nvfp4::checkpoint
