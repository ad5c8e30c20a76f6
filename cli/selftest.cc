#include "selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

std::string machine_text(const SelftestReport& r) {
  std::string out = fmt::format("\nCPU: {}{} threads, {} is taken\n",
                                r.cpu.empty() ? "" : r.cpu + ", ", r.threads, r.backend);
  Table sets("ll");
  for (const BackendInfo& b : r.backends)
    sets.add({b.name, b.available ? b.description : fmt::format("no: {}", b.reason)});
  out += sets.text();
  if (r.cuda.version.empty()) return out + "\nCUDA: not in this build\n";
  out += fmt::format("\nCUDA {}: machine code for {}\n", r.cuda.version, r.cuda.architectures);
  if (r.gpus.empty()) return out + "  no GPU\n";
  Table gpus("llll");
  for (const SelftestGpu& g : r.gpus)
    gpus.add({device_name(g.info.device), g.info.name, g.info.architecture,
              g.info.available
                  ? fmt::format("{} multiprocessors, {:.0f} MHz, {:.0f} GB/s, {}",
                                g.multiprocessors, g.clock_mhz, g.memory_gb_s,
                                human_bytes(static_cast<std::uint64_t>(g.memory_bytes)))
                  : fmt::format("no: {}", g.info.reason)});
  return out + gpus.text();
}

/// Returns the row of the checks of one name and subject.
std::vector<std::string> check_row(std::span<const SelftestCheck> parts) {
  SelftestCheck all = parts[0];
  for (const SelftestCheck& c : parts.subspan(1)) {
    all.part += fmt::format(", {}", c.part);
    all.cases += c.cases;
    all.wrong += c.wrong;
    for (const std::string& kernel : c.kernels)
      if (std::ranges::find(all.kernels, kernel) == all.kernels.end())
        all.kernels.push_back(kernel);
  }
  if (!all.kernels.empty())
    all.part +=
        fmt::format("; {} kernel{}", all.kernels.size(), all.kernels.size() == 1 ? "" : "s");
  return {all.name,
          all.wrong == 0 ? fmt::format("{} right", all.cases)
                         : fmt::format("{} of {} WRONG", all.wrong, all.cases),
          all.part};
}

std::string checks_text(std::span<const SelftestCheck> all) {
  std::string out;
  while (!all.empty()) {
    const std::string& subject = all[0].subject;
    Table table("lll");
    while (!all.empty() && all[0].subject == subject) {
      const auto end = std::ranges::find_if(all, [&](const SelftestCheck& c) {
        return c.subject != subject || c.name != all[0].name;
      });
      const auto parts = all.first(static_cast<std::size_t>(end - all.begin()));
      table.add(check_row(parts));
      for (const SelftestCheck& c : parts)
        if (c.wrong > 0) table.add({"", "WRONG", fmt::format("{}: {}", c.part, c.fault)});
      all = all.subspan(parts.size());
    }
    out += fmt::format("\nChecks of {}:\n{}", subject, table.text());
  }
  return out;
}

std::string rates_text(std::span<const SelftestRate> rates) {
  Table table("llll");
  for (const SelftestRate& rate : rates)
    table.add({rate.subject, rate.name, fmt::format("{:.4g} {}", rate.value, rate.unit),
               rate.limit > 0
                   ? fmt::format("{:.0f} % of {}", 100 * rate.value / rate.limit, rate.limit_of)
                   : ""});
  return fmt::format("Rates, threads: {}\n{}", threads(), table.text());
}

/// Returns the report as lines that fit the terminal.
std::string text(const SelftestReport& r) {
  std::int64_t cases = 0, wrong = 0;
  for (const SelftestCheck& c : r.checks) cases += c.cases, wrong += c.wrong;
  std::string out =
      fmt::format("nvfp4 {} selftest: {}, {} results compared, {} wrong, {:.1f} s\n", r.version,
                  r.passed() ? "passed" : "FAILED", cases, wrong, r.seconds);
  out += machine_text(r);
  Table plans("lll");
  for (const SelftestPlan& p : r.plans) plans.add({p.device, p.kernel, p.product});
  out += "\nKernels of GEMMs:\n" + plans.text() + checks_text(r.checks);
  if (!r.fp4_instruction.empty()) out += "\nThe FP4 instruction:\n";
  for (const std::string& sentence : r.fp4_instruction) out += fmt::format("  {}\n", sentence);
  if (!r.rates.empty()) out += '\n' + rates_text(r.rates);
  out += "\nNot proven:\n";
  for (const std::string& sentence : r.not_proven) out += fmt::format("  {}\n", sentence);
  return wrapped(stdout, out);
}

void run(SelftestArguments& arguments) {
  std::optional<ReportFile> file;
  if (!arguments.out.empty()) file.emplace("--out", arguments.out);
  if (!arguments.quiet && is_terminal(stderr))
    arguments.progress = [](const std::string& what) { say(fmt::format("\r\033[K{}", what)); };
  const SelftestReport report = run_selftest(arguments);
  if (arguments.progress) say("\r\033[K");
  const std::string lines = text(report), json = to_json(report);
  if (file) {
    const bool only_json = arguments.out.string().ends_with(".json");
    file->write(only_json ? json + '\n' : fmt::format("{}\n{}\n", lines, json));
  }
  if (arguments.json)
    print(json + '\n');
  else
    print(lines);
  if (!report.passed()) throw CLI::RuntimeError(kBroken);
}

}  // namespace

void add_selftest(CLI::App& app) {
  auto arguments = std::make_shared<SelftestArguments>();
  CommandLine line(app, "selftest", *arguments);
  line.callback([arguments] { run(*arguments); });
}

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  CommandLine(app, "bench", *arguments).callback([arguments] {
    print(wrapped(stdout, rates_text(measure_rates(arguments->device, arguments->backend))));
  });
}

}  // namespace nvfp4::cli
