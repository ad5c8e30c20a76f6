// Converts the report of the self-test to JSON and text.
#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "checkpoint/io/json_text.h"
#include "selftest/selftest.h"

namespace nvfp4 {
namespace {

using Lines = std::vector<std::vector<std::string>>;

template <class Range, class Function>
Json array_of(const Range& range, const Function& object) {
  Json all = Json::array();
  for (const auto& element : range) all.push_back(object(element));
  return all;
}

/// Returns columns that are as wide as their widest cells.
std::string aligned(const Lines& lines) {
  std::vector<std::size_t> widths;
  for (const auto& cells : lines)
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], cells[i].size());
    }
  std::string out;
  for (const auto& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += fmt::format("  {:<{}}", cells[i], widths[i]);
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string machine_text(const SelftestReport& r) {
  std::string out = fmt::format("\nCPU: {}{} threads, {} is taken\n",
                                r.cpu.empty() ? "" : r.cpu + ", ", r.threads, r.backend);
  Lines lines;
  for (const BackendInfo& b : r.backends)
    lines.push_back({b.name, b.available ? b.description : fmt::format("no: {}", b.reason)});
  out += aligned(lines);
  if (r.cuda.version.empty()) return out + "\nCUDA: not in this build\n";
  out += fmt::format("\nCUDA {}: machine code for {}\n", r.cuda.version, r.cuda.architectures);
  lines.clear();
  for (const SelftestGpu& g : r.gpus)
    lines.push_back(
        {device_name(g.info.device), g.info.name, g.info.architecture,
         g.info.available
             ? fmt::format("{} multiprocessors, {:.0f} MHz, {:.0f} GB/s, {}", g.multiprocessors,
                           g.clock_mhz, g.memory_gb_s,
                           report::human_bytes(static_cast<std::uint64_t>(g.memory_bytes)))
             : fmt::format("no: {}", g.info.reason)});
  return out + (lines.empty() ? "  no GPU\n" : aligned(lines));
}

/// Returns the line of the checks of one name and subject.
std::vector<std::string> check_line(std::span<const SelftestCheck> parts) {
  SelftestCheck all = parts[0];
  for (const SelftestCheck& c : parts.subspan(1)) {
    all.part += fmt::format(", {}", c.part);
    all.cases += c.cases;
    all.wrong += c.wrong;
    all.worst = std::max(all.worst, c.worst);
    for (const std::string& kernel : c.kernels)
      if (std::ranges::find(all.kernels, kernel) == all.kernels.end())
        all.kernels.push_back(kernel);
  }
  std::string note = all.part;
  if (!all.kernels.empty())
    note += fmt::format("; {} kernel{}", all.kernels.size(), all.kernels.size() == 1 ? "" : "s");
  return {all.subject, all.name,
          all.wrong == 0 ? fmt::format("{} right", all.cases)
                         : fmt::format("{} of {} WRONG", all.wrong, all.cases),
          std::move(note)};
}

std::string checks_text(const SelftestReport& r) {
  const std::span<const SelftestCheck> all = r.checks;
  Lines lines;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].subject == all[begin].subject &&
           all[end].name == all[begin].name)
      ++end;
    lines.push_back(check_line(all.subspan(begin, end - begin)));
  }
  std::string out = "\nChecks:\n" + aligned(lines);
  for (const SelftestCheck& c : all)
    if (c.wrong > 0)
      out += fmt::format("  WRONG: {}, {} {}: {}\n", c.subject, c.name, c.part, c.fault);
  return out;
}

std::string rates_text(const SelftestReport& r) {
  if (r.rates.empty()) return {};
  Lines lines;
  for (const SelftestRate& rate : r.rates)
    lines.push_back({rate.subject, rate.name, fmt::format("{:.4g} {}", rate.value, rate.unit),
                     rate.limit > 0
                         ? fmt::format("{:.0f} % of {:.4g}, {}", 100 * rate.value / rate.limit,
                                       rate.limit, rate.limit_of)
                         : ""});
  return "\nRates, all threads:\n" + aligned(lines);
}

}  // namespace

std::string to_text(const SelftestReport& r) {
  std::int64_t cases = 0, wrong = 0;
  for (const SelftestCheck& c : r.checks) cases += c.cases, wrong += c.wrong;
  std::string out =
      fmt::format("nvfp4 {} selftest: {}, {} results compared, {} wrong, {:.1f} s\n", r.version,
                  r.passed() ? "passed" : "FAILED", cases, wrong, r.seconds);
  out += machine_text(r);
  Lines lines;
  for (const SelftestPlan& p : r.plans) lines.push_back({p.device, p.product, p.kernel});
  out += "\nKernels of GEMMs:\n" + aligned(lines);
  out += checks_text(r);
  if (!r.fp4_instruction.empty()) out += "\nThe FP4 instruction:\n";
  for (const std::string& sentence : r.fp4_instruction) out += fmt::format("  {}\n", sentence);
  out += rates_text(r) + "\nNot proven:\n";
  for (const std::string& sentence : r.not_proven) out += fmt::format("  {}\n", sentence);
  return out;
}

std::string to_json(const SelftestReport& r) {
  const auto check = [](const SelftestCheck& c) -> Json {
    return {{"subject", c.subject}, {"name", c.name},   {"part", c.part},   {"cases", c.cases},
            {"wrong", c.wrong},     {"fault", c.fault}, {"worst", c.worst}, {"kernels", c.kernels}};
  };
  const auto rate = [](const SelftestRate& x) -> Json {
    return {{"subject", x.subject}, {"name", x.name},   {"value", x.value},
            {"unit", x.unit},       {"limit", x.limit}, {"limit_of", x.limit_of}};
  };
  const auto gpu = [](const SelftestGpu& g) -> Json {
    return {{"device", device_name(g.info.device)},
            {"name", g.info.name},
            {"architecture", g.info.architecture},
            {"available", g.info.available},
            {"reason", g.info.reason},
            {"multiprocessors", g.multiprocessors},
            {"memory_bytes", g.memory_bytes},
            {"clock_mhz", g.clock_mhz},
            {"memory_gb_s", g.memory_gb_s}};
  };
  const auto backend = [](const BackendInfo& b) -> Json {
    return {{"name", b.name},
            {"available", b.available},
            {"reason", b.reason},
            {"description", b.description}};
  };
  const auto plan = [](const SelftestPlan& p) -> Json {
    return {{"device", p.device}, {"product", p.product}, {"kernel", p.kernel}};
  };
  return checkpoint::dump_pretty({{"version", r.version},
                                  {"passed", r.passed()},
                                  {"seconds", r.seconds},
                                  {"cpu", r.cpu},
                                  {"threads", r.threads},
                                  {"backend", r.backend},
                                  {"backends", array_of(r.backends, backend)},
                                  {"cuda",
                                   {{"version", r.cuda.version},
                                    {"driver", r.cuda.driver},
                                    {"architectures", r.cuda.architectures}}},
                                  {"gpus", array_of(r.gpus, gpu)},
                                  {"plans", array_of(r.plans, plan)},
                                  {"checks", array_of(r.checks, check)},
                                  {"rates", array_of(r.rates, rate)},
                                  {"fp4_instruction", r.fp4_instruction},
                                  {"not_proven", r.not_proven}});
}

}  // namespace nvfp4
