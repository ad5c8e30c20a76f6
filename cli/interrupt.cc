#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "checkpoint/base/option_values.h"
#include "platform/terminal.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

std::vector<std::string>& words() {
  static std::vector<std::string> all;
  return all;
}
std::string& message() {
  static std::string text;
  return text;
}

/// Returns a word in the quotes of this system's shells.
std::string system_word(std::string_view word) {
  if (platform::kPosixShell) return shell_word(word);
  // File names cannot contain a quote on this system.
  const std::string shown = clean(word);
  const bool bare = !word.empty() && shown.find_first_of(" &|<>^()\"';") == shown.npos;
  return bare ? shown : fmt::format("\"{}\"", shown);
}

/// Returns the command that continues an interrupted one: --resume replaces --overwrite.
std::vector<std::string> resumed(const std::vector<std::string>& all) {
  std::vector<std::string> out;
  bool resumes = false, options = true;
  for (const std::string& word : all) {
    if (options && word == "--overwrite") continue;
    resumes |= options && word == "--resume";
    if (word == "--" && options) {
      options = false;
      if (!resumes) out.emplace_back("--resume");
      resumes = true;
    }
    out.push_back(word);
  }
  if (!resumes) out.emplace_back("--resume");
  return out;
}

std::string advice(const char* what, const std::vector<std::string>& all) {
  std::string command;
  for (const std::string& word : all)
    command += fmt::format("{}{}", command.empty() ? "" : " ", system_word(word));
  return fmt::format("\nnvfp4: interrupted; {}: {}\n", what, command);
}

}  // namespace

void remember_command_line(std::vector<std::string> all) { words() = std::move(all); }

void on_interrupt(bool resumes) {
  message() = resumes ? advice("to continue", resumed(words()))
                      : advice("nothing was written; to start again", words());
  platform::write_before_the_end(message().data(), message().size());
}

}  // namespace nvfp4::cli
