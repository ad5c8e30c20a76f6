#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace nvfp4::platform {

/// Reports whether a stream is a terminal. The caller must find out whether it accepts escape
/// codes.
bool is_terminal(std::FILE* stream);
/// Returns the width of the terminal in characters, or 0 if `stream` is not a terminal.
int columns(std::FILE* stream);

/// Prepares the standard streams; called once, before anything is opened or printed. Closed streams
/// lead nowhere. A closed pipe and a limit of the file size become errors and do not end the
/// process.
void prepare_streams();
/// Returns the words of the command line in UTF-8.
std::vector<std::string> command_line(int argc, char** argv);
/// Reports whether the terminal accepts UTF-8, independent of the locale.
bool terminal_is_utf8();
/// True if shells have the quotes and backslashes of POSIX, false if they only have words in double
/// quotes.
extern const bool kPosixShell;

/// Makes signals that end the process (Ctrl-C, a closed terminal) first write `text` to stderr. The
/// text stays the caller's, and another call can replace it. Ignored signals stay ignored.
void write_before_the_end(const char* text, std::size_t bytes);

}  // namespace nvfp4::platform
