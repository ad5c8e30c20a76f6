#include "nvfp4/checkpoint/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "checkpoint/run/start.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

std::string text(const RepairReport& report, const RepairArguments& options) {
  const Style style(stdout);
  if (report.written.nothing_done)
    return fmt::format("{}: complete already, nothing was done\n",
                       style.bold(clean(options.output.string())));
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
    for (std::size_t i = 0; i < std::min(options.top, all.size()); ++i) {
      const RepairChange& c = *all[i];
      out += fmt::format("  {}\n    {}{}\n", clean(c.tensor), clean(c.text),
                         c.loss ? fmt::format("; {:.3g} % lost", 100 * *c.loss) : "");
    }
    if (all.size() > options.top)
      out += fmt::format("  {}\n", style.dim(fmt::format("and {} more", all.size() - options.top)));
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

void run(RepairArguments& options) {
  const RepairReport report = run_writing<RepairOptions>("repair", /*one_file=*/false, options,
                                                         options.quiet, repair_checkpoint);
  print_warnings(report.written);
  if (options.json)
    print(to_json(report) + "\n");
  else if (!options.quiet)
    print(wrapped(stdout, text(report, options)));
  if (report.after.broken()) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_repair(CLI::App& app) {
  auto arguments = std::make_shared<RepairArguments>();
  CommandLine line(app, "repair", *arguments);
  line.callback([arguments] { run(*arguments); },
                [arguments] { checkpoint::check_given(*arguments); });
}

}  // namespace nvfp4::cli
