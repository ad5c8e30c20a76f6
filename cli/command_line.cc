#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "checkpoint/hub/hub.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/runtime.h"
#include "terminal.h"

namespace nvfp4::cli {

CommandLine::CommandLine(CLI::App& app, const Command& about, std::type_index type, void* arguments)
    : about_(about),
      command_(app.add_subcommand(about.name, about.summary)),
      arguments_(arguments) {
  if (about.arguments != type)
    throw std::logic_error(fmt::format("{}: other arguments than its table has", about.name));
  for (const CommandOption& option : about.options)
    if (option.set) add(option);
}

void CommandLine::add(const CommandOption& option) {
  const auto set = [arguments = arguments_, &option](const std::vector<std::string>& words) {
    try {
      option.set(arguments, words);
    } catch (const ValueError& e) {
      std::string_view what = e.what();
      const std::size_t end = what.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
      if (what.substr(std::min(end, what.size())).starts_with(" = ")) what.remove_prefix(end + 3);
      throw UsageError(fmt::format("{}: {}", option.name(), what),
                       e.code == ErrorCode::value ? ErrorCode::usage : e.code);
    }
    return true;
  };
  if (option.is_flag()) {
    command_->add_flag_callback(option.names, [set] { set({}); });
    return;
  }
  const std::string name = option.required || !option.is_argument()
                               ? option.names
                               : option.names.substr(1, option.names.size() - 2);
  CLI::Option* added = command_->add_option(name, CLI::callback_t(set));
  if (option.kind == OptionKind::list)
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  if (option.required) added->required();
}

void CommandLine::callback(std::function<void()> run, std::function<void()> check) {
  const CLI::Option* dry_run = command_->get_option_no_throw("--dry-run");
  command_->callback([run = std::move(run), check = std::move(check), dry_run, about = &about_,
                      arguments = arguments_, printing = printing_] {
    if (printing != nullptr && printing->threads > 0) set_threads(printing->threads);
    if (check) check();
    // python/nvfp4/_cli.py sets the variable to list the models to download, then runs the command.
    const bool lists = std::getenv("NVFP4_LIST_MISSING") != nullptr;
    const bool downloads = dry_run == nullptr || dry_run->count() == 0;
    std::vector<std::string> missing;
    for (const CommandOption& option : about->options) {
      std::filesystem::path* const path = option.path ? option.path(arguments) : nullptr;
      if (path == nullptr || path->empty()) continue;
      require_no_address(*path);
      if (!option.model) continue;
      if (!lists)
        *path = find_model(*path);
      else if (downloads && !find_cached_model(*path))
        missing.push_back(fmt::format("\"{}\"", path->string()));
    }
    if (lists) return print(fmt::format("{{\"missing\": [{}]}}\n", fmt::join(missing, ", ")));
    run();
  });
}

void print_missing(const SharedWork& work, const std::vector<int>& missing, bool json) {
  if (json) return print(missing_to_json(missing) + "\n");
  print(fmt::format(
      "rank {} of {} has read its share; missing: rank {}; the last one prints the report\n",
      work.rank, work.ranks, fmt::join(missing, ", ")));
}

bool is_one_file(std::string_view format) {
  for (const FormatInfo& f : output_formats())
    if (f.name == format) return !f.extension.empty();
  return false;
}

}  // namespace nvfp4::cli
