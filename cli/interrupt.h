#pragma once

#include <string>

namespace nvfp4::cli {

/// From here on, SIGINT, SIGTERM and SIGHUP write `message` to stderr and end the process as the
/// signal does by default.
void on_interrupt(const std::string& message);

/// What to do after an interruption of `command`. One file leaves nothing that a run could go on
/// with.
std::string interrupt_text(const std::string& format, const std::string& command);

}  // namespace nvfp4::cli
