#pragma once

#include <string>
#include <vector>

namespace nvfp4::cli {

/// Stores the words of the command line, the program's name first. on_interrupt() prints them.
void remember_command_line(std::vector<std::string> words);

/// Handles SIGINT, SIGTERM and SIGHUP from now on. The first signal writes the command that
/// continues the run to stderr, and ends the process by the default action. A second signal ends it
/// at once, even if that text cannot be written. `resumes` is false for an output of one file,
/// which cannot be continued.
void on_interrupt(bool resumes);

}  // namespace nvfp4::cli
