#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda_build.h"
#include "checkpoint/base/option_values.h"
#include "commands.h"
#include "core/nearest_name.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

std::size_t width() { return std::min<std::size_t>(80, columns(stdout)); }

/// Returns an entry "  --name VALUE            text". Further lines of the text are below its
/// first.
std::string entry(const std::string& name, const std::string& text) {
  const std::size_t indent = width() < 60 ? 6 : 26;
  std::string out = "  " + name;
  bool first = true;
  for (const std::string& line : wrap_words(text, width() - indent)) {
    const bool fits = first && out.size() + 2 <= indent;
    if (first && !fits) out += '\n';
    out += std::string(fits ? indent - out.size() : indent, ' ') + line + '\n';
    first = false;
  }
  return out;
}

std::string paragraph(const std::string& text) {
  std::string out;
  for (const std::string& line : wrap_words(text, width())) out += line + '\n';
  return out;
}

/// Returns the text below the options, whose lines have up to 80 characters, for a narrow terminal.
/// Commands to copy, which are indented, stay on one line.
std::string notes_text(const std::string& notes) {
  if (width() >= 80) return notes;
  std::string out, gathered;
  const auto flush = [&] {
    if (!gathered.empty()) out += paragraph(gathered);
    gathered.clear();
  };
  for (std::size_t at = 0; at < notes.size();) {
    const std::size_t end = std::min(notes.find('\n', at), notes.size());
    const std::string line = notes.substr(at, end - at);
    at = end + 1;
    const std::size_t gap = line.starts_with("  ") ? line.find("  ", 2) : line.npos;
    if (!line.empty() && !line.starts_with("  ")) {
      gathered += (gathered.empty() ? "" : " ") + line;
      continue;
    }
    flush();
    out += gap == line.npos
               ? line + '\n'
               : entry(line.substr(2, gap - 2), line.substr(line.find_first_not_of(' ', gap)));
  }
  flush();
  return out;
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// Returns a text such as "; hint: did you mean 'quantize'?" with the name nearest to `word`, or ""
/// if none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::string> bare;
  bare.reserve(names.size());
  for (const std::string& name : names) bare.emplace_back(without_dashes(name));
  const std::size_t nearest = nearest_name(without_dashes(word), bare);
  return nearest == names.size() ? "" : fmt::format("; hint: did you mean '{}'?", names[nearest]);
}

/// Returns options such as "--format". One letter is near every other, so short options are left
/// out.
std::vector<std::string> long_options(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options)
    for (const std::string& name : options::split(option.names))
      if (name.starts_with("--")) names.push_back(name);
  return names;
}

std::string unknown_option(const Command& command, std::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  std::string text = fmt::format("no option '{}'", name);
  if (!command.name.empty()) text += " of " + command.name;
  if (const std::string now = command.place_of_former(name); !now.empty())
    return fmt::format("{}; hint: did you mean '{}'?", text, now);
  for (const Command& other : commands())
    if (other.find(name) != nullptr) return fmt::format("{}; hint: {} has it", text, other.name);
  return text + did_you_mean(name, long_options(command));
}

std::string too_many(const Command& command, const std::string& word) {
  std::string arguments;
  for (const CommandOption& option : command.options)
    if (option.is_argument()) arguments += ' ' + option.names;
  return fmt::format("'{}' is one argument too many: {}{}", word, command.name,
                     arguments.empty() ? " takes none" : arguments);
}

std::string details() {
  std::string text;
  for (const BackendInfo& b : backends())
    text += fmt::format("  {:<15} {}\n", b.name, b.available ? b.description : b.reason);
  const CudaBuild cuda = cuda_build();
  text += cuda.version.empty() ? "CUDA: not in this build\n"
                               : fmt::format("CUDA {}: machine code for {}; driver {} or newer\n",
                                             cuda.version, cuda.architectures, cuda.driver);
  for (const DeviceInfo& d : cuda_devices())
    text += fmt::format("  {:<15} {}, {}{}\n", fmt::format("cuda:{}", d.device.index), d.name,
                        d.architecture, d.available ? "" : fmt::format(": {}", d.reason));
  if (!cuda.version.empty() && cuda_devices().empty())
    text += fmt::format("  {}\n", why_unavailable(Device::cuda()));
  return "CPU, best first:\n" + text;
}

}  // namespace

std::string help_text(const Command& command) {
  const Style style(stdout);
  std::string usage = command.name.empty() ? "nvfp4" : "nvfp4 " + command.name;
  std::string arguments, options, below;
  for (const CommandOption& option : command.options) {
    if (option.is_argument()) {
      usage += ' ' + option.names;
      arguments += entry(option.names, option.text);
      continue;
    }
    std::string left = option.names;
    if (const std::size_t comma = left.find(','); comma != left.npos) left.insert(comma + 1, " ");
    if (!option.value.empty()) left += ' ' + option.value;
    options += entry(left, option.text);
  }
  if (command.name.empty())
    for (const Command& each : commands()) below += entry(each.name, each.summary);
  usage += below.empty() ? " [options]" : " COMMAND [arguments]";

  std::string out = paragraph(command.summary);
  out += '\n' + paragraph(fmt::format("{} {}", style.bold("Usage:"), usage));
  if (!below.empty()) out += fmt::format("\n{}\n{}", style.bold("Commands:"), below);
  if (!arguments.empty()) out += fmt::format("\n{}\n{}", style.bold("Arguments:"), arguments);
  out += fmt::format("\n{}\n{}", style.bold("Options:"), options);
  return out + notes_text(command.notes);
}

std::string no_command(std::string_view word) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return fmt::format("no command '{}'{}", word, did_you_mean(word, names));
}

std::string unknown_word(const Command& command, const std::vector<std::string>& words,
                         const std::vector<std::string>& behind) {
  const auto option = std::ranges::find_if(words, [&](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::ranges::count(behind, word) == 0;
  });
  if (command.name.empty() && !words.empty() && option != words.begin())
    return no_command(words[0]);
  if (option != words.end()) return unknown_option(command, *option);
  return words.empty() ? "" : too_many(command, words[0]);
}

std::string version_text(bool verbose) {
  std::string text = fmt::format("nvfp4 {}", version());
  if (verbose) text += '\n' + details();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace nvfp4::cli
