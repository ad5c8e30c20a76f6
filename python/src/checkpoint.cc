#include "nvfp4/checkpoint/checkpoint.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "bind.h"
#include "checkpoint/compare/shared_work.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/safetensors/apart.h"
#include "commands/arguments.h"
#include "commands/commands.h"
#include "interruptible.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/error.h"
#include "report/report.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

/// The words of each argument that was given, by keyword.
using Words = std::map<std::string, std::vector<std::string>>;

/// Returns the arguments of a command. Throws ValueError for wrong words.
template <class Arguments>
Arguments arguments_of(const Command& command, const Words& given) {
  Arguments arguments;
  for (const auto& [keyword, words] : given) {
    const CommandOption* const option = command.find_keyword(keyword);
    if (option == nullptr) throw ValueError(keyword + ": no option of " + command.function);
    try {
      option->set(&arguments, words);
    } catch (const ValueError& e) {
      const std::string what = e.what();
      throw ValueError(what.starts_with('\'') ? keyword + " = " + what : what, e.code);
    }
  }
  return arguments;
}

template <class Report>
std::string to_json(const Shared<Report>& shared) {
  return shared.report ? nvfp4::to_json(*shared.report) : missing_to_json(shared.missing);
}
std::string to_json(const SampleReport& /*report*/) { return "null"; }
using nvfp4::to_json;

/// Returns work(arguments) as JSON.
template <class Arguments, class Work>
std::string run(const Command& command, const Words& given, const nb::object& progress,
                const Work& work) {
  auto arguments = arguments_of<Arguments>(command, given);
  return interruptible(progress, [&](const OnProgress& on_progress) {
    arguments.progress = on_progress;
    return to_json(work(arguments));
  });
}

QuantizeReport quantize(QuantizeArguments& arguments) {
  const Rank rank = rank_of(arguments);
  arguments.rank = rank.rank;
  arguments.ranks = rank.ranks;
  return quantize_checkpoint(arguments);
}

Shared<VerifyReport> verify(const VerifyArguments& arguments) {
  return verify_share(arguments, work_of(arguments));
}

Shared<CompareReport> compare(const CompareArguments& o) {
  const SharedWork work = work_of(o);
  require_apart({{"a", o.a},
                 {"b", o.b},
                 {"against", o.against},
                 {"run", o.run},
                 {"statistics", o.statistics}},
                {{"html", o.html}});
  if (o.html.empty()) {
    if (!o.against.empty() || !o.run.empty() || !o.statistics.empty())
      throw ValueError("against, run and statistics are for the page, which html writes");
    return compare_share(o.a, o.b, work, o.progress);
  }
  if (fs::is_directory(o.html)) throw ValueError("html = '" + o.html.string() + "' is a folder");
  if (!fs::is_directory(fs::absolute(o.html).parent_path()))
    throw IoError("html = '" + o.html.string() + "': there is no such folder",
                  ErrorCode::not_found);
  Shared<CompareReport> report = compare_share(o.a, o.b, work, o.progress);
  if (report.report)
    safetensors::write_file_atomically(
        o.html,
        report::page_of(*report.report, o.a, o.b, 0, o.progress, {o.run, o.statistics, o.against}));
  return report;
}

/// Returns the report of a command as JSON. The words are bytes, because paths need not be UTF-8.
std::string run_command(const std::string& name, const nb::dict& words, const nb::object& progress,
                        const std::string& answers) {
  const Command& about = command(name);
  Words given;
  for (const auto& [keyword, list] : words)
    for (const nb::handle word : nb::cast<nb::list>(list)) {
      const auto bytes = nb::cast<nb::bytes>(word);
      given[nb::cast<std::string>(keyword)].emplace_back(bytes.c_str(), bytes.size());
    }
  if (name == "quantize") return run<QuantizeArguments>(about, given, progress, quantize);
  if (name == "convert") return run<ConvertArguments>(about, given, progress, convert_checkpoint);
  if (name == "repair") return run<RepairArguments>(about, given, progress, repair_checkpoint);
  if (name == "verify")
    return run<VerifyArguments>(about, given, progress, [&](VerifyArguments& arguments) {
      arguments.answers = answers;
      return verify(arguments);
    });
  if (name == "inspect") return run<InspectArguments>(about, given, progress, inspect_checkpoint);
  if (name == "compare") return run<CompareArguments>(about, given, progress, compare);
  if (name == "sample") return run<SampleArguments>(about, given, progress, sample_checkpoint);
  throw ValueError("command = " + name + ", has no function");
}

/// Returns the commands that have a function, as JSON.
std::string commands_json() {
  Json all = Json::array();
  for (const Command& c : commands()) {
    if (c.function.empty()) continue;
    Json options = Json::array();
    for (const CommandOption& o : c.options)
      if (!o.keyword.empty())
        options.push_back({{"keyword", o.keyword},
                           {"kind", kind_name(o.kind)},
                           {"text", o.text},
                           {"choices", o.choices},
                           {"former", o.former},
                           {"fallback", o.fallback},
                           {"required", o.required},
                           {"model", o.model}});
    all.push_back(
        {{"name", c.name}, {"function", c.function}, {"summary", c.summary}, {"options", options}});
  }
  return all.dump();
}

/// Returns a key for each module of a model with this config.json, which may be empty. Modules with
/// equal keys share a global scale.
std::vector<std::string> fuse_keys(const std::vector<std::string>& modules,
                                   const std::string& config) {
  std::vector<std::string> model_types;
  if (!config.empty())
    model_types = checkpoint::parse_model_config(config, "config.json").model_types;
  const checkpoint::FuseRules rules({}, model_types);
  std::vector<std::string> keys;
  for (const std::string& module : modules) keys.push_back(rules.key(module));
  return keys;
}

/// An EntryList that owns its entries and budget.
class OwnedEntryList {
 public:
  OwnedEntryList(std::vector<std::string> entries, std::string file)
      : entries_(std::move(entries)),
        file_(std::move(file)),
        list_(entries_, file_, std::make_shared<checkpoint::MatchBudget>()) {}

  std::optional<std::size_t> first(std::string_view module) const { return list_.first(module); }
  /// Returns the arguments of the constructor, for pickle and copy.
  std::pair<std::vector<std::string>, std::string> state() const { return {entries_, file_}; }

 private:
  std::vector<std::string> entries_;
  std::string file_;
  checkpoint::EntryList list_;
};

}  // namespace

void bind_checkpoint(nb::module_& m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<OwnedEntryList>(m, "EntryList",
                             "Names, globs and \"re:\" expressions of a quantization_config.")
      .def(nb::init<std::vector<std::string>, std::string>(), "entries"_a, "file"_a, Unlocked())
      .def("__getstate__", &OwnedEntryList::state)
      .def("__setstate__",
           [](OwnedEntryList& list, std::pair<std::vector<std::string>, std::string> state) {
             new (&list) OwnedEntryList(std::move(state.first), std::move(state.second));
           })
      .def("first", &OwnedEntryList::first, "module"_a, Unlocked(),
           "The number of the first entry that is meant for a module, or None.");
  m.def("list_files", &list_files, "folder"_a);
  m.def(
      "require_apart",
      [](const std::vector<std::pair<std::string, fs::path>>& reads,
         const std::vector<std::pair<std::string, fs::path>>& writes) {
        std::vector<UsedPath> lists[2];
        for (const auto& [name, path] : reads) lists[0].push_back({name, path});
        for (const auto& [name, path] : writes) lists[1].push_back({name, path});
        require_apart(std::move(lists[0]), std::move(lists[1]));
      },
      "reads"_a, "writes"_a);
  m.def("commands", &commands_json);
  m.def("run_command", &run_command, "name"_a, "words"_a, "progress"_a.none(), "answers"_a);
  m.def(
      "rank_from_text",
      [](std::optional<int> rank, const std::string& ranks) {
        const Rank found = rank_from_text(rank, ranks);
        return std::pair(found.rank, found.ranks);
      },
      "rank"_a.none(), "ranks"_a);
  m.def("require_no_address", &require_no_address, "path"_a);
  m.def("find_model", &find_model, "name"_a);
  m.def("fuse_keys", &fuse_keys, "modules"_a, "config"_a);
  m.def("conversion_targets", &conversion_targets);
}

}  // namespace nvfp4::python
