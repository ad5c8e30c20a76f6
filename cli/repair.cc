#include "nvfp4/checkpoint/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

struct RepairArguments {
  RepairOptions options;
  RunArguments run;
  bool json = false;
  std::size_t top = 3;
};

std::string text(const RepairReport& report, const RepairArguments& arguments) {
  const Style style(stdout);
  const RepairOptions& options = arguments.options;
  std::string out =
      fmt::format("{} {} {}{}\n", style.bold(clean(options.input.string())), arrow(),
                  style.bold(clean(options.output.string())), options.dry_run ? "  (dry run)" : "");
  std::vector<std::string> order;
  std::map<std::string, std::vector<const RepairChange*>> changes;
  for (const RepairChange& c : report.changes) {
    auto& all = changes[c.code];
    if (all.empty()) order.push_back(c.code);
    all.push_back(&c);
  }
  for (const std::string& code : order) {
    const auto& all = changes[code];
    out += fmt::format("\n{}{}\n", style.bold(code),
                       all.size() > 1 ? fmt::format(", {} times", all.size()) : "");
    for (std::size_t i = 0; i < std::min(arguments.top, all.size()); ++i) {
      const RepairChange& c = *all[i];
      out += fmt::format("  {}\n    {}{}\n", clean(c.tensor), clean(c.text),
                         c.loss ? fmt::format("; {:.3g} % lost", 100 * *c.loss) : "");
    }
    if (all.size() > arguments.top)
      out +=
          fmt::format("  {}\n", style.dim(fmt::format("and {} more", all.size() - arguments.top)));
  }
  if (changes.empty()) out += "\nnothing to change, the copy is the same model\n";
  out += fmt::format("\nbefore: {} errors, {} warnings\n", report.before.count(Severity::error),
                     report.before.count(Severity::warning));
  if (!options.dry_run)
    out +=
        fmt::format("after:  {}, {} warnings\n",
                    report.after.broken()
                        ? style.red(fmt::format("{} errors", report.after.count(Severity::error)))
                        : style.green("0 errors"),
                    report.after.count(Severity::warning));
  return out;
}

void run(RepairArguments& arguments) {
  RepairOptions& options = arguments.options;
  const RepairReport report =
      run_writing("repair", /*one_file=*/false, options, arguments.run, repair_checkpoint);
  print_warnings(report.written);
  if (arguments.json)
    print(to_json(report) + "\n");
  else if (!arguments.run.quiet)
    print(text(report, arguments));
  if (report.after.broken()) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_repair(CLI::App& app) {
  auto arguments = std::make_shared<RepairArguments>();
  RepairOptions& o = arguments->options;
  CommandLine line(app, "repair");
  line.model("PATH", o.input);
  line.option("OUTPUT", o.output);
  line.model("--source", o.source);
  line.word("--scales", [&o](const std::string& s) { o.scales_swizzled = s == "swizzled"; });
  line.word("--nibbles", [&o](const std::string& n) { o.high_nibble_first = n == "high"; });
  line.number("--top", arguments->top, 0, 1'000'000'000);
  line.flag("--json", arguments->json);
  line.option("--method", o.method);
  add_run_options(line, o, arguments->run);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
