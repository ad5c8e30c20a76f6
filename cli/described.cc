#include "described.h"

#include <algorithm>

namespace nvfp4::cli {
namespace {

/// Returns the choices in a type such as "TEXT:{bash,zsh,fish}", which CLI11 makes of a list.
std::vector<std::string> listed(const std::string& type) {
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == type.npos || close == type.npos || close < open) return {};
  std::vector<std::string> values;
  for (std::size_t at = open + 1; at <= close;) {
    const std::size_t end = std::min(type.find(',', at), close);
    values.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return values;
}

}  // namespace

std::vector<Described> described(const CLI::App& command) {
  std::vector<Described> all;
  for (const CLI::Option* option : command.get_options()) {
    Described& d = all.emplace_back();
    d.text = option->get_description();
    d.required = option->get_required();
    d.argument = option->get_positional();
    d.values = listed(option->get_type_name());
    if (d.argument) {
      d.names = {option->get_name(true)};
      continue;
    }
    for (const std::string& name : option->get_snames()) d.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) d.names.push_back("--" + name);
    if (option->get_items_expected_max() > 0)
      d.value = option->get_option_text().empty() ? "VALUE" : option->get_option_text();
  }
  return all;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

}  // namespace nvfp4::cli
