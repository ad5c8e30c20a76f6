#include "nvfp4/checkpoint/verify.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

std::string paint(Severity severity, std::string_view text, const Style& style) {
  return severity == Severity::error     ? style.red(text)
         : severity == Severity::warning ? style.yellow(text)
                                         : style.cyan(text);
}

/// The findings of one kind.
struct FindingGroup {
  const Finding* first;
  std::vector<const Finding*> all;
};

std::string group_text(const FindingGroup& group, std::size_t top, const Style& style) {
  const Finding& f = *group.first;
  std::string out = fmt::format(
      "{} {}{}\n", paint(f.severity, severity_name(f.severity), style), style.bold(f.code),
      group.all.size() > 1 ? fmt::format(", {} times", group.all.size()) : "");
  for (std::size_t i = 0; i < std::min(top, group.all.size()); ++i)
    out += "  " + clean(group.all[i]->text) + '\n';
  if (group.all.size() > top)
    out += fmt::format("  {}\n", style.dim(fmt::format("and {} more", group.all.size() - top)));
  Table table("ll", 4);
  table.fact("loader", clean(f.effect));
  table.fact("fix", clean(f.fix));
  return out + table.text();
}

std::string paint_verdict(Verdict verdict, const Style& style) {
  const std::string_view name = verdict_name(verdict);
  return is_bad(verdict)               ? style.red(name)
         : verdict == Verdict::unknown ? style.yellow(name)
                                       : style.green(name);
}

/// Returns one row for each loader.
std::string loader_table(const VerifyReport& report, const Style& style) {
  if (report.loaders.empty()) return {};
  Table table("lll", 0);
  table.title({fmt::format("{:<18}", "loader"), "verdict ", ""});
  for (const LoaderVerdict& v : report.loaders) {
    std::string why = v.code.empty() ? v.text : v.code + ": " + v.text;
    if (v.findings > 1) why += fmt::format(" (and {} more)", v.findings - 1);
    if (v.verdict == Verdict::reads && !v.version.empty())
      why = fmt::format("{}: {}", v.version, why);
    table.add({v.loader, paint_verdict(v.verdict, style), clean(why)});
  }
  return '\n' + table.text();
}

std::string text(const VerifyReport& report, const VerifyArguments& arguments) {
  const Style style(stdout);
  std::vector<FindingGroup> groups;
  std::map<std::string, std::size_t> index;
  for (const Finding& f : report.findings) {
    const auto [it, fresh] = index.try_emplace(f.code, groups.size());
    if (fresh) groups.push_back({&f, {}});
    groups[it->second].all.push_back(&f);
  }
  std::string out = style.bold(clean(report.path)) + '\n';
  for (const FindingGroup& group : groups) out += '\n' + group_text(group, arguments.top, style);
  out += loader_table(report, style);
  if (!report.tensor_parallel.empty() && report.quantized > 0)
    out += fmt::format("\nGPUs that can share every layer: {}\n",
                       fmt::join(report.tensor_parallel, ", "));
  const auto counted = [&](Severity severity) {
    const std::int64_t n = report.count(severity);
    return fmt::format("{} {}{}", n, severity_name(severity), n == 1 ? "" : "s");
  };
  const std::string form =
      report.quantized == 0
          ? "not quantized"
          : fmt::format("{}{}{}", report.format, report.scheme.empty() ? "" : ", ", report.scheme);
  out += fmt::format("\n{} tensors, {} of them quantized ({}), {}{}\n", report.tensors,
                     report.quantized, clean(form), human_bytes(report.bytes),
                     report.loader.empty() ? "" : ", for " + report.loader);
  out += fmt::format("{}: {}, {}, {}\n",
                     report.count(Severity::error) > 0 ? style.red("faulty")
                     : report.broken()                 ? style.red("not for " + report.loader)
                     : report.is_unknown()             ? style.yellow("unknown")
                                                       : style.green("OK"),
                     counted(Severity::error), counted(Severity::warning), counted(Severity::note));
  return out;
}

void run(VerifyArguments& arguments) {
  // python/nvfp4/_cli.py sets the first variable to learn the question, and the second to answer
  // it.
  if (std::getenv("NVFP4_PRINT_QUESTION") != nullptr)
    return print(fmt::format("{} {}\n{}", arguments.loader, fmt::join(arguments.asked, " "),
                             arguments.path.string()));
  if (const char* answers = std::getenv("NVFP4_LOADER_ANSWERS")) arguments.answers = answers;
  const SharedWork work = work_of(arguments);
  const Shared<VerifyReport> shared = [&] {
    ProgressBar progress("verify", arguments.quiet);
    arguments.progress = progress.callback();
    return verify_share(arguments, work);
  }();
  if (!shared.report) return print_missing(work, shared.missing, arguments.json);
  const VerifyReport& report = *shared.report;
  print(arguments.json ? to_json(report) + "\n" : wrapped(stdout, text(report, arguments)));
  if (report.broken()) throw CLI::RuntimeError(kBroken);
  if (report.is_unknown()) throw CLI::RuntimeError(kUnknown);
}

}  // namespace

void add_verify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  CommandLine line(app, "verify", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { work_of(*arguments); });
}

}  // namespace nvfp4::cli
