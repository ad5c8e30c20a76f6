#pragma once

#include <string>
#include <vector>

namespace nvfp4::cli {

/// The words of the command line, the program's name first: what on_interrupt() repeats.
void remember_command_line(std::vector<std::string> words);

/// From here on, the first SIGINT, SIGTERM or SIGHUP writes the command to go on with to stderr and
/// ends the process as the signal does by default; a second one ends it at once, even if that text
/// finds nobody who reads it. `resumes` is false for one file, of which nothing is there to go on
/// with.
void on_interrupt(bool resumes);

}  // namespace nvfp4::cli
