#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace nvfp4 {

/// A JSON value that is not a container. Non-negative integers are uint64_t, negative ones int64_t.
/// Numbers that fit neither, or have a fraction or exponent, are double.
using JsonScalar =
    std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// Returns the value for messages: `null`, `-3`, `'text'`.
std::string describe(const JsonScalar& value);

/// Receives a JSON text in its order. `depth` is the number of containers around a key or value.
/// For begin_ and end_ it includes the container itself: the outermost has 1.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void begin_object(int depth) = 0;
  virtual void key(std::string name, int depth) = 0;
  virtual void end_object(int depth) = 0;
  virtual void begin_array(int depth) = 0;
  virtual void end_array(int depth) = 0;
  virtual void value(JsonScalar scalar, int depth) = 0;
  /// Reports whether the visitor itself rejects duplicate keys in the object.
  virtual bool checks_keys(int depth) const { return depth < 0; }
  /// Returns the part of the text that is being read, for messages: "tensor 'a': ", or nothing.
  virtual std::string context() const { return {}; }
};

/// Reads hostile JSON: exactly one value and whitespace, valid UTF-8, unique keys in each object,
/// at most `max_depth` nested containers. It does not recurse. Throws FormatError that starts with
/// `where`.
void visit_json(std::string_view text, int max_depth, const std::string& where,
                JsonVisitor& visitor);

}  // namespace nvfp4
