// Generates the completions of shells from the texts of --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>

#include "commands.h"
#include "described.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

constexpr const char* kCompletionsFooter = R"(
Examples:
  nvfp4 completions bash > ~/.local/share/bash-completion/completions/nvfp4
  nvfp4 completions zsh > ~/.zfunc/_nvfp4       # with fpath+=~/.zfunc
  nvfp4 completions fish > ~/.config/fish/completions/nvfp4.fish
)";

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

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

/// Reports whether a command is expected next, as after "help" and "man".
bool takes_command(const Described& d) { return d.argument && d.names[0] == "COMMAND"; }

std::string bash(const CLI::App& app) {
  std::string values, files, options;
  const auto add = [&](const std::string& command, const CLI::App& of) {
    std::vector<std::string> all;
    for (const Described& d : described(of)) {
      const auto words = takes_command(d) ? names_of_commands(app) : d.values;
      if (d.argument && !words.empty())
        options += fmt::format("    '{} '*) words={} ;;\n", command, quoted(joined(words)));
      if (d.argument) continue;
      all.insert(all.end(), d.names.begin(), d.names.end());
      for (const std::string& name : d.names) {
        if (d.value.empty()) continue;
        if (d.values.empty())
          files += fmt::format("    '{} {}') return ;;\n", command, name);
        else
          values +=
              fmt::format("    '{} {}') words={} ;;\n", command, name, quoted(joined(d.values)));
      }
    }
    options += fmt::format("    '{} -'*) words={} ;;\n", command, quoted(joined(all)));
  };
  add("", app);
  for (const CLI::App* command : commands_of(app)) add(command->get_name(), *command);
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
                     values, files, options, quoted(joined(names_of_commands(app))));
}

std::string zsh_options(const CLI::App& app, const CLI::App& of, const char* indent) {
  std::string out;
  int argument = 0;
  for (const Described& d : described(of)) {
    const auto words = takes_command(d) ? names_of_commands(app) : d.values;
    const std::string action = words.empty() ? "_files" : fmt::format("({})", joined(words));
    if (d.argument) {
      out += fmt::format("{}{}:{}:{} \\\n", indent, ++argument, d.names[0], quoted(action));
      continue;
    }
    const std::string text = quoted(d.text, "[]:\\");
    for (const std::string& name : d.names)
      out += fmt::format("{}'{}[{}]{}' \\\n", indent, name, text.substr(1, text.size() - 2),
                         d.value.empty() ? "" : fmt::format(":{}:{}", d.value, action));
  }
  return out.substr(0, out.size() - 3) + "\n";
}

std::string zsh(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : commands_of(app)) {
    commands +=
        fmt::format("      {}\n", quoted(command->get_name() + ':' + command->get_description()));
    cases += fmt::format("    {})\n      _arguments \\\n{}      ;;\n", command->get_name(),
                         zsh_options(app, *command, "        "));
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
                     commands, cases, zsh_options(app, app, "        "));
}

std::string fish(const CLI::App& app) {
  std::string out;
  const auto add = [&](const std::string& when, const CLI::App& of) {
    for (const Described& d : described(of)) {
      const auto words = takes_command(d) ? names_of_commands(app) : d.values;
      const std::string start = fmt::format("complete -c nvfp4 -n {}", quoted(when));
      if (d.argument) {
        if (!words.empty()) out += fmt::format("{} -x -a {}\n", start, quoted(joined(words)));
        continue;
      }
      out += start;
      for (const std::string& name : d.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!d.value.empty())
        out += d.values.empty() ? " -r" : fmt::format(" -x -a {}", quoted(joined(d.values)));
      out += fmt::format(" -d {}\n", quoted(d.text, "\\"));
    }
  };
  for (const CLI::App* command : commands_of(app))
    out += fmt::format("complete -c nvfp4 -n __fish_use_subcommand -x -a {} -d {}\n",
                       command->get_name(), quoted(command->get_description(), "\\"));
  add("__fish_use_subcommand", app);
  for (const CLI::App* command : commands_of(app))
    add("__fish_seen_subcommand_from " + command->get_name(), *command);
  return out;
}

}  // namespace

void add_completions(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completions", "Write what bash, zsh or fish need to complete commands and options");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(kCompletionsFooter);
  command->callback([&app, shell] {
    print(*shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app));
  });
}

}  // namespace nvfp4::cli
