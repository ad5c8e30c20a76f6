#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace nvfp4::checkpoint {

/// JSON in one line. Names in a file need not be UTF-8; what we write is.
inline std::string dump_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
inline std::string dump_pretty(const nlohmann::ordered_json& json, int indent = 2) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace nvfp4::checkpoint
