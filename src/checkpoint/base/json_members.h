#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/base/json.h"

/// Members of JSON that may have any form.
namespace nvfp4 {

/// Returns a member of an object. It is null if the object lacks it, and for other values.
template <class J>
const J& member_of(const J& json, const char* key) {
  static const J kNull;
  const auto it = json.find(key);
  return it == json.end() ? kNull : *it;
}

/// Returns a member that is a text, or "".
template <class J>
std::string text_of(const J& json, const char* key) {
  const J& member = member_of(json, key);
  return member.is_string() ? member.template get<std::string>() : std::string();
}

/// Returns a member that is an integer, or `otherwise`.
template <class J>
std::int64_t integer_of(const J& json, const char* key, std::int64_t otherwise = 0) {
  const J& member = member_of(json, key);
  return member.is_number_integer() ? member.template get<std::int64_t>() : otherwise;
}

/// Returns a member that is a list, or an empty one.
template <class J>
const J& list_of(const J& json, const char* key) {
  static const J kNone = J::array();
  const J& member = member_of(json, key);
  return member.is_array() ? member : kNone;
}

/// Returns a member that is an object, or an empty one.
template <class J>
const J& object_of(const J& json, const char* key) {
  static const J kNone = J::object();
  const J& member = member_of(json, key);
  return member.is_object() ? member : kNone;
}

}  // namespace nvfp4
