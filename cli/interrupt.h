#pragma once

#include <string>

namespace nvfp4::cli {

/// From here on, SIGINT, SIGTERM and SIGHUP write `message` to stderr and end the process as the
/// signal does by default.
void on_interrupt(const std::string& message);

}  // namespace nvfp4::cli
