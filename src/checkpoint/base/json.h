#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace nvfp4 {

/// The members of a JSON object, in the order in which they were added. Above kListed members a
/// tree finds the keys. The time for an object is then not quadratic in its size.
template <class Key, class T, class Less = std::less<Key>,
          class Allocator = std::allocator<std::pair<const Key, T>>>
class OrderedMembers : public nlohmann::ordered_map<Key, T, Less, Allocator> {
  using Base = nlohmann::ordered_map<Key, T, Less, Allocator>;

 public:
  using typename Base::const_iterator;
  using typename Base::iterator;
  using typename Base::size_type;
  using typename Base::value_type;

  OrderedMembers() = default;
  template <class It>
  OrderedMembers(It first, It last) {
    insert(first, last);
  }

  iterator find(std::string_view key) { return this->begin() + position(key); }
  const_iterator find(std::string_view key) const { return this->begin() + position(key); }
  size_type count(std::string_view key) const { return find(key) == this->end() ? 0 : 1; }
  T& at(std::string_view key) { return value_of(*this, key); }
  const T& at(std::string_view key) const { return value_of(*this, key); }

  template <class Name>
  std::pair<iterator, bool> emplace(Name&& key, T value) {
    if (const iterator there = find(key); there != this->end()) return {there, false};
    if (this->size() == this->capacity()) grow();
    this->emplace_back(std::forward<Name>(key), std::move(value));
    index();
    return {this->end() - 1, true};
  }
  template <class Name>
  T& operator[](Name&& key) {
    return emplace(std::forward<Name>(key), T{}).first->second;
  }
  std::pair<iterator, bool> insert(const value_type& member) {
    return emplace(member.first, member.second);
  }
  template <class It>
  void insert(It first, It last) {
    for (; first != last; ++first) emplace(first->first, first->second);
  }

  iterator erase(iterator first, iterator last) {
    const iterator next = Base::erase(first, last);
    positions_.clear();
    index();
    return next;
  }
  iterator erase(iterator at) { return erase(at, at + 1); }
  size_type erase(std::string_view key) {
    const iterator at = find(key);
    if (at == this->end()) return 0;
    erase(at);
    return 1;
  }
  void clear() {
    Base::clear();
    positions_.clear();
  }

 private:
  static constexpr std::size_t kListed = 16;

  template <class Self>
  static auto& value_of(Self& self, std::string_view key) {
    const auto at = self.find(key);
    if (at == self.end()) throw std::out_of_range("key not found");
    return at->second;
  }

  std::ptrdiff_t position(std::string_view key) const {
    std::size_t at = 0;
    if (positions_.empty()) {
      while (at < this->size() && this->data()[at].first != key) ++at;
    } else {
      const auto found = positions_.find(key);
      at = found == positions_.end() ? this->size() : found->second;
    }
    return static_cast<std::ptrdiff_t>(at);
  }

  /// Moves the values to twice the room. A vector would copy them, as their keys are constant.
  void grow() {
    Base members;
    members.reserve(std::max<std::size_t>(4, 2 * this->size()));
    for (value_type& member : *this) members.emplace_back(member.first, std::move(member.second));
    this->swap(members);
  }

  void index() {
    if (this->size() <= kListed) return;
    for (std::size_t i = positions_.size(); i < this->size(); ++i)
      positions_.emplace(this->data()[i].first, i);
  }

  std::map<std::string, std::size_t, std::less<>> positions_;  ///< empty up to kListed members
};

/// A JSON value. Its objects keep the order of their members.
using Json = nlohmann::basic_json<OrderedMembers>;

}  // namespace nvfp4
