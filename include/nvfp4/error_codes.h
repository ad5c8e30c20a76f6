#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "nvfp4/error.h"

/// Codes of errors, which stay when the texts change.
namespace nvfp4 {

struct ErrorInfo {
  ErrorCode code;
  std::string_view type;  ///< of the exception: "IoError"; "usage": the command line is wrong
  std::string_view meaning, fix;

  std::string name() const;  ///< "NV0102"
};

/// Returns all codes in their order. The last one of a type stands for its errors without a code.
std::span<const ErrorInfo> error_codes();
const ErrorInfo& error_info(ErrorCode code);
/// Returns the code of any exception: also of full memory, and of a bug of nvfp4.cpp.
ErrorCode error_code(const std::exception& error);
/// Returns the code of a refusal by the operating system.
ErrorCode error_code(const std::error_code& reason);
/// Returns {"error": {"code", "type", "message", "fix"}}, for --json.
std::string error_json(ErrorCode code, std::string_view message);

}  // namespace nvfp4
