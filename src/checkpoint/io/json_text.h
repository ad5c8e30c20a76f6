#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "checkpoint/io/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

/// Containers within each other that a JSON text of a checkpoint may have. Copies, comparisons and
/// the output of a value recurse: a deeper one would overflow the stack.
inline constexpr int kMaxJsonDepth = 128;

/// Whether no value of the text lies in more than kMaxJsonDepth containers.
bool is_shallow_json(std::string_view text);

/// JSON in one line. Names in a file need not be UTF-8; what we write is.
inline std::string dump_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
inline std::string dump_pretty(const nlohmann::ordered_json& json, int indent = 2) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Why a text is not JSON, in one bounded line: the exception repeats the last token whole, and
/// that may be most of the file.
inline std::string parse_failure(const nlohmann::ordered_json::exception& error) {
  std::string_view reason = error.what();
  reason = reason.substr(0, reason.find("; last read"));
  if (const auto end = reason.find("] "); reason.starts_with("[json.") && end != reason.npos)
    reason.remove_prefix(end + 2);
  return printable(reason);
}

/// Every JSON text of a checkpoint goes through this or parse_json_or_null(). An ordered_json
/// looks its keys up one by one: texts with many keys are for nlohmann::json. Throws FormatError
/// that starts with `where`.
template <class Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, const std::string& where) try {
  require<FormatError>(is_shallow_json(text), ErrorCode::deep_json,
                       "{}: JSON is nested deeper than {} levels", where, kMaxJsonDepth);
  // nlohmann takes it for the end of the text, whatever follows.
  require<FormatError>(text.find('\0') == text.npos, "{}: a NUL byte in JSON", where);
  return Json::parse(text);
} catch (const nlohmann::ordered_json::exception& e) {
  throw FormatError(fmt::format("{}: {}", where, parse_failure(e)), ErrorCode::invalid_json);
}

/// Null if the text is no JSON, or nested too deep.
template <class Json = nlohmann::ordered_json>
Json parse_json_or_null(std::string_view text) {
  if (!is_shallow_json(text) || text.find('\0') != text.npos) return nullptr;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

/// A JSON object, as Python writes it: NaN and Infinity are null. Throws FormatError.
nlohmann::ordered_json parse_config_json(const std::string& text, const std::string& file);

}  // namespace nvfp4::checkpoint
