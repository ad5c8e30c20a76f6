#include "nvfp4/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "commands.h"
#include "interrupt.h"
#include "nvfp4/error.h"
#include "summary.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct Arguments {
  RepairOptions options;
  std::string source, scales = "linear", nibbles = "low", scale_search = "mse";
  bool json = false, quiet = false;
  std::size_t top = 3;
};

constexpr const char* kFooter = R"(
PATH is never changed. What was done to each tensor, and what that lost, is
shown; --json lists all of it. Exit status 3 if the result is still broken.

Examples:
  nvfp4 repair Llama-3.1-8B-NVFP4 out
  nvfp4 repair broken out --source Llama-3.1-8B
)";

std::string text(const RepairReport& report, const Arguments& arguments) {
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

void run(Arguments& arguments) {
  RepairOptions& options = arguments.options;
  if (!arguments.source.empty()) options.source = arguments.source;
  options.scales_swizzled = arguments.scales == "swizzled";
  options.high_nibble_first = arguments.nibbles == "high";
  options.quantizer = quantizer_from_name(arguments.scale_search);
  check_apart(options.input, options.output);
  if (!options.dry_run) on_interrupt(/*resumes=*/true);
  const RepairReport report = [&] {
    ProgressBar progress("repair", arguments.quiet);
    options.progress = progress.callback();
    return repair_checkpoint(options);
  }();
  print_warnings(report.written);
  if (arguments.json)
    print(to_json(report) + "\n");
  else if (!arguments.quiet)
    print(text(report, arguments));
  if (report.after.broken()) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_repair(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  RepairOptions& o = arguments->options;
  CLI::App* command =
      app.add_subcommand("repair", "Write a broken checkpoint again, with its faults put right");
  command->add_option("PATH", o.input, "model folder")->required();
  command->add_option("OUTPUT", o.output, "folder to write; new or empty")->required();
  command
      ->add_option("--source", arguments->source,
                   "what it was quantized from: what cannot be put right otherwise is quantized "
                   "again")
      ->option_text("DIR");
  command
      ->add_option("--scales", arguments->scales,
                   "how block scales lie in PATH: linear, the default, or swizzled")
      ->option_text("ORDER")
      ->check(CLI::IsMember({"linear", "swizzled"}));
  command
      ->add_option("--nibbles", arguments->nibbles,
                   "which nibble the even column is in: low, the default, or high")
      ->option_text("ORDER")
      ->check(CLI::IsMember({"low", "high"}));
  command
      ->add_option("--input-amax", o.input_amax,
                   "JSON: module name or pattern to the largest activation, for missing input "
                   "scales")
      ->option_text("FILE");
  command
      ->add_option("--quantizer,--scale-search", arguments->scale_search,
                   "for what is quantized again: max, four_over_six, or mse, the default")
      ->option_text("NAME")
      ->check(CLI::IsMember(quantizer_names()));
  add_threads(*command);
  command->add_option("--top", arguments->top, "changes of a kind to show; 3 if not given")
      ->option_text("N");
  command->add_flag("--json", arguments->json, "everything, as JSON");
  add_run_flags(*command, o.resume, o.overwrite, o.dry_run, arguments->quiet);
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
