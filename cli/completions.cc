// The completions of shells.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "checkpoint/base/option_values.h"
#include "commands.h"

namespace nvfp4::cli {
namespace {

using Commands = std::span<const Command>;

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

/// Returns text in the single quotes of a shell, with `escape` before each character of `special`.
std::string quoted(const std::string& text, std::string_view special = "") {
  std::string out = "'";
  for (const char c : text) {
    if (special.find(c) != special.npos) out += '\\';
    if (c == '\'')
      out += R"('\'')";
    else
      out += c;
  }
  return out + "'";
}

std::vector<std::string> command_names(Commands commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

/// Returns the words that may stand here; a command after "help" and "man".
std::vector<std::string> words_for(const CommandOption& option, Commands commands) {
  return option.names == "[COMMAND]" ? command_names(commands) : option.choices;
}

std::string bash(Commands commands) {
  std::string values, files, shown;
  const auto add = [&](const Command& command) {
    std::vector<std::string> all;
    for (const CommandOption& option : command.options) {
      const std::vector<std::string> words = words_for(option, commands);
      if (option.is_argument()) {
        if (!words.empty())
          shown += fmt::format("    '{} '*) words={} ;;\n", command.name, quoted(joined(words)));
        continue;
      }
      for (const std::string& name : options::split(option.names)) {
        all.push_back(name);
        if (option.is_flag()) continue;
        if (words.empty())
          files += fmt::format("    '{} {}') return ;;\n", command.name, name);
        else
          values +=
              fmt::format("    '{} {}') words={} ;;\n", command.name, name, quoted(joined(words)));
      }
    }
    shown += fmt::format("    '{} -'*) words={} ;;\n", command.name, quoted(joined(all)));
  };
  add(program());
  for (const Command& command : commands) add(command);
  return fmt::format(R"(# bash completion of nvfp4; files where nothing else fits
_nvfp4() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in -*) ;; *) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  COMPREPLY=()
  case "$command $before" in
{}{}  esac
  [ -n "$words" ] || case "$command $word" in
{}    ' '*) words={} ;;
  esac
  [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _nvfp4 nvfp4
)",
                     values, files, shown, quoted(joined(command_names(commands))));
}

/// Returns the value of an option without characters that zsh reads as syntax.
std::string zsh_value(const CommandOption& option) {
  std::string value = option.value;
  std::ranges::replace_if(
      value, [](char c) { return c == ':' || c == '[' || c == ']'; }, ' ');
  return value;
}

std::string zsh_options(const Command& command, Commands commands, const char* indent) {
  std::string out;
  int argument = 0;
  for (const CommandOption& option : command.options) {
    const std::vector<std::string> words = words_for(option, commands);
    const std::string action = words.empty() ? "_files" : fmt::format("({})", joined(words));
    if (option.is_argument()) {
      out += fmt::format("{}{}:{}:{} \\\n", indent, ++argument,
                         option.keyword.empty() ? "word" : option.keyword, quoted(action));
      continue;
    }
    const std::string text = quoted(option.text, "[]:\\");
    for (const std::string& name : options::split(option.names))
      out += fmt::format("{}'{}[{}]{}' \\\n", indent, name, text.substr(1, text.size() - 2),
                         option.is_flag() ? "" : fmt::format(":{}:{}", zsh_value(option), action));
  }
  return out.substr(0, out.size() - 3) + "\n";
}

std::string zsh(Commands commands) {
  std::string all, cases;
  for (const Command& command : commands) {
    all += fmt::format("      {}\n", quoted(command.name + ':' + command.summary));
    cases += fmt::format("    {})\n      _arguments \\\n{}      ;;\n", command.name,
                         zsh_options(command, commands, "        "));
  }
  return fmt::format(R"(#compdef nvfp4
_nvfp4() {{
  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
    local -a commands=(
{}    )
    _describe command commands
    return
  fi
  local command=$words[2]
  words=("${{(@)words[2,-1]}}")
  ((CURRENT -= 1))
  case $command in
{}    *)
      _arguments \
{}      ;;
  esac
}}
_nvfp4 "$@"
)",
                     all, cases, zsh_options(program(), commands, "        "));
}

std::string fish(Commands commands) {
  std::string out;
  const auto add = [&](const std::string& when, const Command& command) {
    for (const CommandOption& option : command.options) {
      const std::vector<std::string> words = words_for(option, commands);
      const std::string start = fmt::format("complete -c nvfp4 -n {}", quoted(when));
      if (option.is_argument()) {
        if (!words.empty()) out += fmt::format("{} -x -a {}\n", start, quoted(joined(words)));
        continue;
      }
      out += start;
      for (const std::string& name : options::split(option.names))
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.is_flag())
        out += words.empty() ? " -r" : fmt::format(" -x -a {}", quoted(joined(words)));
      out += fmt::format(" -d {}\n", quoted(option.text, "\\"));
    }
  };
  for (const Command& command : commands)
    out += fmt::format("complete -c nvfp4 -n __fish_use_subcommand -x -a {} -d {}\n", command.name,
                       quoted(command.summary, "\\"));
  add("__fish_use_subcommand", program());
  for (const Command& command : commands)
    add("__fish_seen_subcommand_from " + command.name, command);
  return out;
}

}  // namespace

std::string completions(const std::string& shell, Commands commands) {
  return shell == "bash" ? bash(commands) : shell == "zsh" ? zsh(commands) : fish(commands);
}

}  // namespace nvfp4::cli
