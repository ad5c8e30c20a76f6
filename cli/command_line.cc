#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "checkpoint/hub/hub.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "terminal.h"

namespace nvfp4::cli {

CommandLine::CommandLine(CLI::App& app, std::string_view name)
    : about_(nvfp4::command(name)), command_(app.add_subcommand(about_.name, about_.summary)) {
  command_->footer(about_.notes);
}

CLI::Option* CommandLine::flag(std::string_view name, bool& to) {
  const CommandOption& o = take(name);
  return dress(o, command_->add_flag(o.names, to, o.text));
}

CLI::Option* CommandLine::word(std::string_view name, std::function<void(const std::string&)> set) {
  const CommandOption& o = take(name);
  const auto checked = [set = std::move(set),
                        name = std::string(name)](const CLI::results_t& words) {
    try {
      set(words.front());
    } catch (const ValueError& e) {
      throw UsageError(fmt::format("{}: {}", name, e.what()), e.code);
    }
    return true;
  };
  return dress(o, command_->add_option(o.names, checked, o.text)->type_name("TEXT"));
}

CLI::Option* CommandLine::words(std::string_view name,
                                std::function<void(const std::vector<std::string>&)> set) {
  const CommandOption& o = take(name);
  CLI::Option* option =
      command_->add_option_function<std::vector<std::string>>(o.names, std::move(set), o.text);
  return named_.emplace_back(dress(o, option)->delimiter(','));
}

void CommandLine::check(CLI::Option* option, std::function<void(const std::string&)> check,
                        std::string description) {
  const auto throwing = [option, check = std::move(check)](const std::string& word) {
    try {
      check(word);
    } catch (const ValueError& e) {
      throw UsageError(fmt::format("{}: {}", option->get_name(), e.what()), e.code);
    }
    return std::string();
  };
  option->check(CLI::Validator(throwing, std::move(description)));
}

void CommandLine::threads() {
  const CommandOption& o = take("--threads");
  CLI::Option* option = command_->add_option_function<int>(
      o.names, [](int threads) { set_threads(threads); }, o.text);
  dress(o, option)->transform(number_from(1, 4096));
}

void CommandLine::callback(std::function<void()> run, std::function<void()> check) {
  for (const CommandOption& o : about_.options)
    if (!taken_.contains(&o))
      throw std::logic_error(fmt::format("{} {} sets nothing", about_.name, o.names));
  // This check is last, because the checks of an option itself give better messages.
  for (CLI::Option* option : named_)
    if (!option->get_positional())
      option->check(CLI::Validator(
          [](const std::string& word) { return word.empty() ? "'', must not be empty" : ""; }, ""));
  const CLI::Option* dry_run = command_->get_option_no_throw("--dry-run");
  command_->callback([=, paths = std::move(paths_), models = std::move(models_)] {
    for (const GivenPath& path : paths)
      if (path() != nullptr) require_no_address(*path());
    if (check) check();
    // python/nvfp4/_cli.py sets the variable to list the models to download, then runs the command.
    const bool lists = std::getenv("NVFP4_LIST_MISSING") != nullptr;
    const bool downloads = dry_run == nullptr || dry_run->count() == 0;
    std::vector<std::string> missing;
    for (const GivenPath& model : models) {
      std::filesystem::path* const path = model();
      if (path == nullptr || path->empty()) continue;
      if (!lists)
        *path = find_model(*path);
      else if (downloads && !find_cached_model(*path))
        missing.push_back(fmt::format("\"{}\"", path->string()));
    }
    if (lists) return print(fmt::format("{{\"missing\": [{}]}}\n", fmt::join(missing, ", ")));
    run();
  });
}

const CommandOption& CommandLine::take(std::string_view name) {
  const CommandOption* option = about_.find(name);
  if (option == nullptr)
    throw std::logic_error(fmt::format("{} has no {}", about_.name, std::string(name)));
  taken_.insert(option);
  return *option;
}

CLI::Option* CommandLine::dress(const CommandOption& about, CLI::Option* option) {
  if (!about.value.empty()) option->option_text(about.value);
  if (!about.choices.empty()) {
    const CLI::IsMember known(about.choices);
    const bool has_number = about.names == "--method";  // "gptq:4"
    const auto require_known = [known, has_number](std::string word) {
      if (has_number) word.resize(std::min(word.find(':'), word.size()));
      if (const std::string fault = known(word); !fault.empty())
        throw ValueError(fault, ErrorCode::not_a_choice);
    };
    check(option, require_known, known.get_description());
  }
  if (about.repeatable) option->allow_extra_args(false);
  if (about.required) option->required();
  return option;
}

void add_allow(CommandLine& line, Allowed& allowed) {
  line.words("--allow", [&allowed](const std::vector<std::string>& names) {
    allowed = allowed_from_names(names);
  });
}

void add_run_options(CommandLine& line, RunOptions& options, RunArguments& arguments) {
  options.release_device = true;
  line.option("--input-amax", options.input_amax);
  line.threads();
  line.word("--device",
            [&options](const std::string& name) { options.device = device_from_name(name); });
  line.option("--backend", options.backend);
  if (line.has("--report")) line.option("--report", arguments.report);
  CLI::Option* resume = line.flag("--resume", options.resume);
  line.flag("--overwrite", options.overwrite)->excludes(resume);
  line.flag("--dry-run", options.dry_run);
  line.flag("--quiet", arguments.quiet);
}

Rank rank_of(const std::optional<int>& rank, const std::string& ranks) try {
  return rank_from_text(rank, ranks);
} catch (const ValueError& e) {
  throw UsageError(fmt::format("--ranks: {}", e.what()), e.code);
}

void add_share_options(CommandLine& line, ShareArguments& arguments) {
  line.number("--rank", arguments.rank, 0, kMostRanks);
  line.option("--ranks", arguments.ranks);
  line.option("--parts", arguments.parts);
}

SharedWork ShareArguments::work() const {
  const Rank found = rank_of(rank, ranks);
  return {found.rank, found.ranks, parts};
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
