#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>

/// Codes of errors, which stay when the texts change.
namespace nvfp4 {

struct ErrorCode {
  std::string_view code;  ///< "NV0102"
  std::string_view type;  ///< of the exception: "IoError"; "usage": the command line is wrong
  std::string_view
      message;  ///< parts of the text that tell it from others, "|" between them; "": any other
  std::string_view meaning, fix;
};

/// In the order of their codes; the last of each type is for whatever has no code of its own.
std::span<const ErrorCode> error_codes();
/// The code of an error. Other exceptions have one, too: memory is full, a bug of nvfp4.cpp.
const ErrorCode& error_code(const std::exception& error);
/// The same by the name of its type, "IoError".
const ErrorCode& error_code(std::string_view type, std::string_view message);
/// {"error": {"code", "type", "message", "fix"}}, for --json.
std::string error_json(const ErrorCode& code, std::string_view message);

}  // namespace nvfp4
