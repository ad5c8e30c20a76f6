#include "nvfp4/checkpoint/checkpoint.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>

#include "bind.h"
#include "checkpoint/compare/shared_work.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/match/entry_list.h"
#include "checkpoint/safetensors/apart.h"
#include "interruptible.h"
#include "keywords.h"
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

/// Sets the run options from keywords. `input` is the function's name for the input.
void take_run_options(const Keywords& given, const char* input, RunOptions& options) {
  given.take(input, options.input);
  given.take("output", options.output);
  given.take("input_amax", options.input_amax);
  given.take("resume", options.resume);
  given.take("overwrite", options.overwrite);
  given.take("dry_run", options.dry_run);
  given.take("backend", options.backend);
  options.device = device_from_name(given.word("device", "cpu"));
}

template <class Report>
std::string to_json(const Shared<Report>& shared) {
  return shared.report ? nvfp4::to_json(*shared.report) : missing_to_json(shared.missing);
}
using nvfp4::to_json;

/// Returns work(options) as JSON, with the progress function of `given`.
template <class Options, class Work>
std::string report_of(const nb::dict& given, Options& options, const Work& work) {
  const nb::object progress =
      given.contains("progress") ? nb::object(given["progress"]) : nb::object(nb::none());
  return interruptible(progress, [&](const OnProgress& on_progress) {
    options.progress = on_progress;
    return to_json(work(options));
  });
}

template <class Options>
void take_rank(const Keywords& words, const nb::dict& given, Options& options) {
  std::optional<int> number;
  words.take("rank", number);
  const Rank rank = rank_from_text(
      number, given.contains("ranks") ? nb::str(nb::handle(given["ranks"])).c_str() : "1");
  options.rank = rank.rank;
  options.ranks = rank.ranks;
}

void take_allow(const Keywords& given, Allowed& allowed) {
  std::vector<std::string> names;
  given.take("allow", names);
  allowed = allowed_from_names(names);
}

std::string quantize_json(const nb::dict& given) {
  const Keywords words("quantize", given);
  QuantizeCheckpointOptions options;
  take_run_options(words, "input", options);
  options.scheme = scheme_from_name(words.word("scheme", "nvfp4"));
  words.take("format", options.format);
  words.take("method", options.method);
  words.take("statistics", options.statistics);
  words.take("recipe", options.recipe);
  words.take("bits", options.bits);
  if (const std::string size = given.contains("size") && !nb::handle(given["size"]).is_none()
                                   ? nb::str(nb::handle(given["size"])).c_str()
                                   : "";
      !size.empty())
    options.size = size_from_text(size);
  words.take("merge", options.merge);
  words.take("ignore", options.ignore);
  words.take("include", options.include);
  words.take("fuse", options.fuse);
  take_allow(words, options.allow);
  words.take("keep_dtype", options.keep_dtype);
  take_rank(words, given, options);
  return report_of(given, options, quantize_checkpoint);
}

std::string convert_json(const nb::dict& given) {
  const Keywords words("convert", given);
  ConvertOptions options;
  take_run_options(words, "input", options);
  words.take("method", options.method);
  words.take("to", options.to);
  if (const std::string scheme = words.word("scheme"); !scheme.empty())
    options.scheme = scheme_from_name(scheme);
  take_allow(words, options.allow);
  return report_of(given, options, convert_checkpoint);
}

std::string repair_json(const nb::dict& given) {
  const Keywords words("repair", given);
  RepairOptions options;
  take_run_options(words, "path", options);
  words.take("method", options.method);
  words.take("source", options.source);
  options.scales_swizzled = words.word("scales") == "swizzled";
  options.high_nibble_first = words.word("nibbles") == "high";
  return report_of(given, options, repair_checkpoint);
}

std::string verify_json(const nb::dict& given) {
  const Keywords words("verify", given);
  VerifyOptions options;
  words.take("path", options.path);
  words.take("source", options.source);
  words.take("loader", options.loader);
  words.take("full", options.full);
  SharedWork shared;
  take_rank(words, given, shared);
  words.take("parts", shared.parts);
  return report_of(given, options, [&](const VerifyOptions& o) { return verify_share(o, shared); });
}

std::string inspect_json(const nb::dict& given) {
  const Keywords words("inspect", given);
  InspectOptions options;
  words.take("path", options.path);
  words.take("tensor", options.tensor);
  words.take("histograms", options.histograms);
  return report_of(given, options, inspect_checkpoint);
}

struct CompareOptions {
  fs::path a, b;
  std::optional<fs::path> html, against, run, statistics;
  OnProgress progress;
};

std::string compare_json(const nb::dict& given) {
  const Keywords words("compare", given);
  CompareOptions options;
  words.take("a", options.a);
  words.take("b", options.b);
  words.take("html", options.html);
  words.take("against", options.against);
  words.take("run", options.run);
  words.take("statistics", options.statistics);
  SharedWork shared;
  take_rank(words, given, shared);
  words.take("parts", shared.parts);
  return report_of(given, options, [&](const CompareOptions& o) {
    require_apart({{"a", o.a},
                   {"b", o.b},
                   {"against", o.against.value_or("")},
                   {"run", o.run.value_or("")},
                   {"statistics", o.statistics.value_or("")}},
                  {{"html", o.html.value_or("")}});
    if (o.html && fs::is_directory(*o.html))
      throw ValueError("html = '" + o.html->string() + "' is a folder");
    if (o.html && !fs::is_directory(fs::absolute(*o.html).parent_path()))
      throw IoError("html = '" + o.html->string() + "': there is no such folder",
                    ErrorCode::not_found);
    if (!o.html && (o.against || o.run || o.statistics))
      throw ValueError("against, run and statistics are for the page, which html writes");
    Shared<CompareReport> report = compare_share(o.a, o.b, shared, o.progress);
    if (o.html && report.report)
      safetensors::write_file_atomically(
          *o.html,
          report::page_of(*report.report, o.a, o.b, 0, o.progress,
                          {o.run.value_or(""), o.statistics.value_or(""), o.against.value_or("")}));
    return report;
  });
}

void sample_folder(const nb::dict& given) {
  const Keywords words("sample", given);
  SampleOptions options;
  words.take("output", options.output);
  words.take("arch", options.arch);
  words.take("layers", options.layers);
  words.take("scale", options.scale);
  words.take("seed", options.seed);
  words.take("shards", options.shards);
  words.take("overwrite", options.overwrite);
  interruptible(nb::none(), [&](const OnProgress& on_progress) {
    options.progress = on_progress;
    return sample_checkpoint(options);
  });
}

/// Returns the commands of commands/commands.h as dicts.
nb::list command_list() {
  nb::list all;
  for (const Command& c : commands()) {
    nb::list options;
    for (const CommandOption& o : c.options) {
      nb::dict option;
      option["names"] = o.names;
      option["value"] = o.value;
      option["keyword"] = o.keyword;
      option["fallback"] = o.fallback;
      option["text"] = o.text;
      option["choices"] = o.choices;
      option["required"] = o.required;
      option["repeatable"] = o.repeatable;
      options.append(option);
    }
    nb::dict command;
    command["name"] = c.name;
    command["function"] = c.function;
    command["summary"] = c.summary;
    command["options"] = options;
    all.append(command);
  }
  return all;
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
  m.def("commands", &command_list);
  m.def(
      "rank_from_text",
      [](std::optional<int> rank, const std::string& ranks) {
        const Rank found = rank_from_text(rank, ranks);
        return std::pair(found.rank, found.ranks);
      },
      "rank"_a.none(), "ranks"_a);
  m.def("require_no_address", &require_no_address, "path"_a);
  m.def("find_model", &find_model, "name"_a);
  m.def("conversion_targets", &conversion_targets);
  m.def("quantize_checkpoint", &quantize_json, "given"_a);
  m.def("convert", &convert_json, "given"_a);
  m.def("repair", &repair_json, "given"_a);
  m.def("verify", &verify_json, "given"_a);
  m.def("inspect", &inspect_json, "given"_a);
  m.def("compare", &compare_json, "given"_a);
  m.def("sample", &sample_folder, "given"_a);
}

}  // namespace nvfp4::python
