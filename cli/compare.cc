#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/base/error_codes.h"
#include "checkpoint/safetensors/apart.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "report/report.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

std::string form(const TensorDifference& t) {
  return t.form_a == t.form_b ? t.form_a : fmt::format("{} {} {}", t.form_a, arrow(), t.form_b);
}

std::string list(const std::string& title, const std::vector<std::string>& names,
                 const Style& style, std::size_t top) {
  if (names.empty()) return {};
  std::string out = fmt::format("\n{}\n", style.yellow(fmt::format("{}: {}", title, names.size())));
  for (std::size_t i = 0; i < std::min(names.size(), top); ++i)
    out += "  " + clean(names[i]) + '\n';
  if (names.size() > top) out += fmt::format("  and {} more\n", names.size() - top);
  return out;
}

/// Returns a tensor's name without ".weight", such as "model.layers.0.mlp.up_proj".
std::string short_name(const std::string& name) {
  return clean(name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name);
}

std::string worst_table(const CompareReport& report, std::size_t shown, bool one_form) {
  Table table("srrrl");
  table.title({shown < report.tensors.size()
                   ? fmt::format("worst {} of {}", shown, report.tensors.size())
                   : "worst first",
               "rel. error", "SQNR dB", "max |err|", one_form ? "" : "form"});
  for (std::size_t i = 0; i < shown; ++i) {
    const TensorDifference& t = report.tensors[i];
    table.add({short_name(t.name), number(100 * t.relative_error, "{:.3f} %"),
               number(t.sqnr_db, "{:.2f}"), number(t.max_error, "{:.3g}"),
               one_form ? "" : form(t)});
  }
  return table.text();
}

std::string text(const CompareReport& report, const CompareArguments& arguments) {
  const Style style(stdout);
  std::string out = fmt::format("{} (a) and {} (b)\n", style.bold(clean(arguments.a.string())),
                                style.bold(clean(arguments.b.string())));
  for (const auto& [name, complete] : {std::pair{"a", report.complete_a}, {"b", report.complete_b}})
    if (!complete)
      out += style.yellow(fmt::format("{} is incomplete: an interrupted run left it", name)) + '\n';
  const std::size_t shown = std::min(report.tensors.size(), arguments.top);
  const bool one_form = std::ranges::all_of(
      report.tensors, [&](const auto& t) { return form(t) == form(report.tensors.front()); });
  if (shown > 0) out += '\n' + worst_table(report, shown, one_form);
  out += list("only in a", report.only_in_a, style, arguments.top);
  out += list("only in b", report.only_in_b, style, arguments.top);
  out += list("not comparable", report.shape_mismatch, style, arguments.top);

  Table totals("ll");
  if (report.tensors.empty()) {
    totals.fact("different", "none");
  } else {
    const std::string forms = one_form ? ", " + form(report.tensors.front()) : "";
    totals.fact("different", fmt::format("{} tensors{}", report.tensors.size(), forms));
    totals.add({"", fmt::format("relative error {}, SQNR {} dB, max |err| {}",
                                style.bold(number(100 * report.relative_error, "{:.3f} %")),
                                style.bold(number(report.sqnr_db, "{:.2f}")),
                                number(report.max_error, "{:.3g}"))});
    totals.add({"", fmt::format("median of the tensors {}, worst {}",
                                number(100 * report.median_relative_error, "{:.3f} %"),
                                number(100 * report.tensors.front().relative_error, "{:.3f} %"))});
  }
  if (report.tensors.empty() && report.identical == 0)
    out += '\n' + style.yellow("nothing was compared: no tensor is in both") + '\n';
  totals.fact("identical", fmt::format("{} tensors", report.identical));
  return out + '\n' + totals.text();
}

void require_page_apart(const CompareArguments& arguments, const ReportFile& page) {
  require_apart({{"A", arguments.a},
                 {"B", arguments.b},
                 {"--against", arguments.against},
                 {"--run", arguments.run},
                 {"--statistics", arguments.statistics}},
                {{"--html", page.file()}});
}

void check(const CompareArguments& arguments) {
  work_of(arguments);
  for (const auto& [option, value] : {std::pair{"--against", &arguments.against},
                                      {"--run", &arguments.run},
                                      {"--statistics", &arguments.statistics}})
    if (!value->empty() && arguments.html.empty())
      throw CLI::ValidationError(option, "is for the page, which --html writes");
}

void run(const CompareArguments& arguments) {
  const SharedWork work = work_of(arguments);
  std::optional<ReportFile> file;
  if (!arguments.html.empty())
    require_page_apart(arguments, file.emplace("--html", arguments.html));
  const Shared<CompareReport> shared = [&] {
    ProgressBar progress("compare", arguments.quiet);
    return compare_share(arguments.a, arguments.b, work, progress.callback());
  }();
  if (!shared.report) return print_missing(work, shared.missing, arguments.json);
  const CompareReport& report = *shared.report;
  if (file) {
    ProgressBar progress("codes and scales", arguments.quiet);
    file->write(report::page_of(report, arguments.a, arguments.b, arguments.top,
                                progress.callback(),
                                {arguments.run, arguments.statistics, arguments.against}));
  }
  print(arguments.json ? to_json(report) + "\n" : text(report, arguments));
  const bool nothing = report.tensors.empty() && report.identical == 0;
  if (nothing || !report.complete_a || !report.complete_b) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto arguments = std::make_shared<CompareArguments>();
  CommandLine line(app, "compare", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

}  // namespace nvfp4::cli
