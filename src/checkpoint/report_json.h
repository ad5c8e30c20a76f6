#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace nvfp4::checkpoint {

/// JSON has no NaN and no infinity.
inline nlohmann::ordered_json finite_or_null(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

/// Names in a file need not be UTF-8; a report must be.
inline std::string dump_json(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace nvfp4::checkpoint
