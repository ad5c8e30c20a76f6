#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace nvfp4::platform {

/// Whether escape codes mean something there is for the caller to find out.
bool is_terminal(std::FILE* stream);
/// Of the terminal behind `stream`; 0 if there is none.
int columns(std::FILE* stream);

/// Once, before anything is opened or printed: stdin, stdout and stderr lead nowhere if they are
/// closed, a closed pipe and a limit of the size of files are errors and end no process.
void prepare_streams();
/// The words of the command line in UTF-8.
std::vector<std::string> command_line(int argc, char** argv);
/// Whether the terminal takes UTF-8, whatever the locale says.
bool terminal_is_utf8();
/// Whether shells read quotes and backslashes as POSIX says, or words in double quotes alone.
extern const bool kPosixShell;

/// Makes signals that ask for an end (Ctrl-C, a closed terminal) first write `text` to stderr. It
/// stays the caller's and may be replaced by another call. Signals that are ignored stay so.
void write_before_the_end(const char* text, std::size_t bytes);

}  // namespace nvfp4::platform
