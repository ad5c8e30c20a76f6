#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "nvfp4/error.h"

/// The codes of errors. A code is stable when the text changes.
namespace nvfp4 {

/// A code and its description.
struct ErrorInfo {
  ErrorCode code;
  std::string_view type;  ///< exception, such as "IoError"; "usage": a wrong command line
  std::string_view meaning, fix;

  std::string name() const;  ///< such as "NV0102"
};

/// Returns all codes in their order. The last code of a type is for its errors without a specific
/// code.
std::span<const ErrorInfo> error_codes();
/// Returns the description of a code.
const ErrorInfo& error_info(ErrorCode code);
/// Returns the code of any exception, also of std::bad_alloc and of a bug in nvfp4.cpp.
ErrorCode error_code(const std::exception& error);
/// Returns the code of a refusal by the operating system.
ErrorCode error_code(const std::error_code& reason);
/// The message of an error and what to do: the text behind "; hint: ", or the fix of the code.
struct ErrorText {
  std::string message, hint;
};
ErrorText error_text(ErrorCode code, std::string_view message);
/// Returns {"error": {"code", "type", "message", "fix"}}, for --json.
std::string error_json(ErrorCode code, std::string_view message);

/// An error in the options that does not depend on the content of the input. Examples are output
/// and input inside one another, resume together with overwrite, and a number out of range.
struct OptionsError : ValueError {
  using ValueError::ValueError;
  std::string option = {};  ///< keyword of the option at fault, such as "output"; "": several
};

}  // namespace nvfp4
