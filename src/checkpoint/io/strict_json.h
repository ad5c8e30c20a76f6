#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace nvfp4 {

/// A JSON value that holds no others. Non-negative integers are uint64_t, negative ones int64_t;
/// what fits neither, or has a fraction or exponent, is double.
using JsonScalar =
    std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// For messages: `null`, `-3`, `'text'`.
std::string describe(const JsonScalar& value);

/// Receives a JSON text in its order. `depth` counts the containers around a key or value, and for
/// begin_ and end_ the container itself: the outermost is 1.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void begin_object(int depth) = 0;
  virtual void key(std::string name, int depth) = 0;
  virtual void end_object(int depth) = 0;
  virtual void begin_array(int depth) = 0;
  virtual void end_array(int depth) = 0;
  virtual void value(JsonScalar scalar, int depth) = 0;
  /// Whether the visitor itself sees to it that no key of the object is there twice.
  virtual bool checks_keys(int depth) const { return depth < 0; }
  /// Which part of the text is being read, for messages: "tensor 'a': ", or nothing.
  virtual std::string context() const { return {}; }
};

/// Reads hostile JSON: nothing but one value and whitespace, valid UTF-8, no key twice in an
/// object, no more than `max_depth` containers around anything. Does not recurse. Throws
/// FormatError that starts with `where`.
void visit_json(std::string_view text, int max_depth, const std::string& where,
                JsonVisitor& visitor);

}  // namespace nvfp4
