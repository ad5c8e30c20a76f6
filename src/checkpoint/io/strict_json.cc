#include "checkpoint/io/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

/// Adds checks for duplicate keys and depth, which the parser lacks.
class StrictSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  StrictSax(int max_depth, const std::string& where, JsonVisitor& visitor)
      : max_depth_(max_depth), where_(where), visitor_(visitor) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool v) override { return scalar(v); }
  bool number_integer(number_integer_t v) override { return scalar(std::int64_t{v}); }
  bool number_unsigned(number_unsigned_t v) override { return scalar(std::uint64_t{v}); }
  bool number_float(number_float_t v, const string_t&) override { return scalar(v); }
  bool string(string_t& v) override { return scalar(std::move(v)); }
  bool binary(binary_t&) override { return false; }  // A text has no binary values.

  bool start_object(std::size_t) override {
    open();
    visitor_.begin_object(depth());
    return true;
  }
  bool key(string_t& name) override {
    if (!visitor_.checks_keys(depth()) && !keys_.back().insert(name).second)
      throw FormatError(fmt::format("{}: {}key '{}' appears twice, must be unique", where_,
                                    visitor_.context(), printable(name)),
                        ErrorCode::duplicate_name);
    visitor_.key(std::move(name), depth());
    return true;
  }
  bool end_object() override {
    visitor_.end_object(depth());
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    open();
    visitor_.begin_array(depth());
    return true;
  }
  bool end_array() override {
    visitor_.end_array(depth());
    keys_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    // The exception repeats the whole last token, which may be most of the file.
    reason = reason.substr(0, reason.find("; last read"));
    if (const auto at = reason.find("syntax error"); at != reason.npos) reason.remove_prefix(at);
    throw FormatError(
        fmt::format("{}: {}invalid JSON at byte {}, near '{}': {}", where_, visitor_.context(),
                    position, printable(last_token, 64), printable(reason)),
        ErrorCode::invalid_json);
  }

 private:
  int depth() const { return static_cast<int>(keys_.size()); }
  void open() {
    if (depth() == max_depth_)
      throw FormatError(fmt::format("{}: {}JSON is nested deeper than {} levels", where_,
                                    visitor_.context(), max_depth_),
                        ErrorCode::deep_json);
    keys_.emplace_back();
  }
  bool scalar(JsonScalar v) {
    visitor_.value(std::move(v), depth());
    return true;
  }

  int max_depth_;
  const std::string& where_;
  JsonVisitor& visitor_;
  // the keys of each open container; hashes could be made to collide.
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

std::string describe(const JsonScalar& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::nullptr_t>)
          return "null";
        else if constexpr (std::is_same_v<T, std::string>)
          return fmt::format("'{}'", printable(v));
        else
          return fmt::format("{}", v);
      },
      value);
}

void visit_json(std::string_view text, int max_depth, const std::string& where,
                JsonVisitor& visitor) {
  // The parser takes a NUL for the end of its input and ignores the rest.
  const auto nul = text.find('\0');
  require<FormatError>(nul == text.npos, ErrorCode::invalid_json,
                       "{}: invalid JSON at byte {}: a NUL character", where, nul);
  StrictSax sax(max_depth, where, visitor);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
  require<FormatError>(ok, ErrorCode::invalid_json, "{}: invalid JSON", where);
}

}  // namespace nvfp4
