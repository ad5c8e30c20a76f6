#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "checkpoint/printable.h"

namespace nvfp4::checkpoint {

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

}  // namespace nvfp4::checkpoint
