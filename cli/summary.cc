#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "checkpoint/base/option_values.h"
#include "nvfp4/runtime.h"
#include "terminal.h"
#include "write_run.h"

namespace nvfp4::cli {
namespace {

namespace fs = std::filesystem;

/// Returns "cpu", or a text such as "cuda:0, NVIDIA H200".
std::string describe(Device device) {
  std::string text = device_name(device);
  if (device.type == DeviceType::cpu) return text;  // a search for GPUs takes 0.1 s
  for (const DeviceInfo& gpu : cuda_devices())
    if (gpu.device == device) text += ", " + gpu.name;
  return text;
}

/// The actions in the order of the table.
constexpr const char* kActions[] = {"quantized", "converted",   "moved", "fp8", "q8_0",
                                    "merged",    "dequantized", "cast",  "kept"};
constexpr std::size_t kWritten = 3;  ///< index of the first action without NVFP4

std::size_t order_of(const std::string& action) {
  return static_cast<std::size_t>(std::ranges::find(kActions, action) - std::begin(kActions));
}

struct ActionGroup {
  std::int64_t tensors = 0;
  std::uint64_t before = 0, after = 0;
};

std::int64_t elements(const TensorReport& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape) n *= d;
  return n;
}

/// Returns a text such as "8.2 GB → 3.8 GB, 2.15x smaller".
std::string size_text(const QuantizeReport& report, const Style& style) {
  const auto before = static_cast<double>(report.bytes_before),
             after = static_cast<double>(report.bytes_after);
  std::string text = fmt::format("{} {} {}", human_bytes(report.bytes_before), arrow(),
                                 human_bytes(report.bytes_after));
  const std::string ratio =
      fmt::format("{:.2f}x", std::max(before, after) / std::max(std::min(before, after), 1.0));
  if (ratio != "1.00x")
    text += fmt::format(", {} {}", style.bold(ratio), after < before ? "smaller" : "larger");
  return text;
}

std::string tensor_table(const QuantizeReport& report, const Style& style) {
  std::map<std::tuple<std::size_t, std::string, std::string>, ActionGroup> groups;
  ActionGroup total;
  for (const TensorReport& t : report.tensors) {
    ActionGroup& group = groups[{order_of(t.action), t.kind, t.reason}];
    for (ActionGroup* g : {&group, &total}) {
      g->tensors += 1;
      g->before += t.bytes_before;
      g->after += t.bytes_after;
    }
  }
  Table table("llrrrl");
  table.title({"tensors", "", "count", "before", "after", ""});
  std::string last_action;
  for (const auto& [key, group] : groups) {
    const auto& [order, kind, reason] = key;
    const std::string action = kActions[order], shown = action == last_action ? "" : action;
    table.add({order < kWritten ? style.green(shown) : shown, clean(kind),
               fmt::format("{}", group.tensors), human_bytes(group.before),
               human_bytes(group.after), style.dim(clean(reason))});
    last_action = action;
  }
  table.add({style.bold("total"), "", style.bold(fmt::format("{}", total.tensors)),
             style.bold(human_bytes(report.bytes_before)),
             style.bold(human_bytes(report.bytes_after)), ""});
  return table.text();
}

/// Adds the tensors with the most rounded blocks, and the first of these blocks.
void add_rounded(const QuantizeReport& report, const Style& style, Table& facts) {
  constexpr std::size_t kTensors = 4, kBlocks = 4;
  std::vector<const TensorReport*> tensors;
  std::uint64_t blocks = 0;
  for (const TensorReport& t : report.tensors) {
    blocks += t.clamped_blocks;
    if (t.clamped_blocks > 0) tensors.push_back(&t);
  }
  if (tensors.empty()) return;
  std::ranges::stable_sort(tensors, std::ranges::greater(), &TensorReport::clamped_blocks);
  const auto rounded = [](std::uint64_t n) { return n == 1 ? "block" : "blocks"; };
  facts.fact("rounded", fmt::format("{} {}, too small for the scale of their tensor:", blocks,
                                    rounded(blocks)));
  for (std::size_t i = 0; i < std::min(tensors.size(), kTensors); ++i) {
    const TensorReport& t = *tensors[i];
    const std::size_t shown = std::min(t.clamped.size(), kBlocks);
    const std::span first(t.clamped.data(), shown);
    const std::string places = shown == 0 ? ""
                                          : fmt::format(": {}{}", fmt::join(first, ", "),
                                                        shown < t.clamped_blocks ? " …" : "");
    const std::string start = fmt::format("{} in ", t.clamped_blocks);
    constexpr std::size_t kWidth = 80 - 11, kNarrow = 20;  // width right of the first column
    const std::size_t rest = start.size() + places.size();
    const std::string name =
        shorten(clean(t.name), std::max(kNarrow, kWidth - std::min(kWidth, rest)));
    facts.add({"", fmt::format("{}{}{}", start, name, places)});
  }
  facts.add({"", style.dim(tensors.size() > kTensors
                               ? fmt::format("and {} more tensors; --report FILE lists all of them",
                                             tensors.size() - kTensors)
                               : "--report FILE lists all of them")});
}

/// Returns the error of the best choice at some budgets, relative to that at the first.
std::string curve_table(const QuantizeReport& report) {
  Table table("rr");
  const bool bits = report.curve_over == "bits";
  table.title({bits ? "bits" : "W4A16", "error of " + report.error_of});
  for (const BudgetPoint& p : report.curve)
    table.add({bits ? number(p.budget, "{:.2f}") : number(p.budget, "{:.0f} %"),
               number(100 * p.error / report.curve.front().error, "{:.2f} %")});
  return table.text() + '\n';
}

/// Returns the number of weights that each rule matched, and the rules without any.
std::string rule_table(const QuantizeReport& report, const Style& style) {
  Table table("rlrrl");
  table.title({"line", "action", "matched", "decided", "rule"});
  for (const RecipeRuleReport& r : report.rules) {
    const std::string count = fmt::format("{}", r.decided);
    table.add({fmt::format("{}", r.line), r.action, fmt::format("{}", r.caught),
               r.decided == 0 ? count : style.green(count), clean(r.text)});
    const std::string usual = fmt::format("{} tensors are excluded by default", r.usual);
    if (r.caught == 0)
      table.add({"", "", "", "", style.dim(r.usual == 0 ? "matches no tensor" : usual)});
    if (r.decided > 0)
      table.add(
          {"", "", "", "",
           style.dim(fmt::format("{}, {}{}", human_bytes(r.bytes), shorten(clean(r.first), 44),
                                 r.decided > 1 ? ", ..." : ""))});
  }
  return fmt::format("{}\n{}\n", style.bold(clean(report.recipe)), table.text());
}

/// Warnings that differ in the names at their start and in numbers.
struct WarningKind {
  std::vector<std::string_view> names;
  std::string_view rest;  ///< of the first one, with the colon behind the name
  bool differs = false;   ///< true if the others have other numbers

  /// Returns one line with at most three names and a count.
  std::string text() const {
    constexpr std::size_t kNamed = 3;
    const std::span shown(names.data(), std::min(names.size(), kNamed));
    std::string more;
    if (names.size() > kNamed) more = fmt::format(" and {} more", names.size() - kNamed);
    return fmt::format(
        "{}{}{}{}", fmt::join(shown, ", "), more, rest,
        differs ? fmt::format(" (numbers of {}; others have their own)", names[0]) : "");
  }
};

std::vector<WarningKind> kinds_of(const std::vector<std::string>& warnings) {
  std::vector<WarningKind> kinds;
  std::map<std::string, std::size_t> index;
  for (const std::string_view warning : warnings) {
    const std::size_t colon = std::min(warning.find(": "), warning.size());
    const std::string_view rest = warning.substr(colon);
    std::string key(rest.empty() ? warning : rest);
    if (!rest.empty()) std::erase_if(key, [](char c) { return c >= '0' && c <= '9'; });
    const auto [it, fresh] = index.try_emplace(std::move(key), kinds.size());
    if (fresh) kinds.push_back({{}, rest});
    kinds[it->second].names.push_back(warning.substr(0, colon));
    kinds[it->second].differs |= kinds[it->second].rest != rest;
  }
  return kinds;
}

}  // namespace

void print_summary(const QuantizeReport& report, const SummaryFacts& about) {
  const Style style(stdout);
  if (report.nothing_done)
    return print(fmt::format("{}: complete already, nothing was done\n",
                             style.bold(clean(about.output.string()))));
  std::string out =
      fmt::format("{} {} {}\n\n", style.bold(clean(about.input.string())), arrow(),
                  style.bold(clean(about.output.string())) + (report.dry_run ? "  (dry run)" : ""));
  if (!report.curve.empty()) out += curve_table(report);
  if (report.dry_run && !report.rules.empty()) out += rule_table(report, style);
  out += tensor_table(report, style) + '\n';

  double weights = 0, encoded = 0, bits = 0, error = 0, norm = 0;
  OutputError outputs;
  bool measured = !report.dry_run;
  for (const TensorReport& t : report.tensors) {
    if (order_of(t.action) >= kWritten) continue;
    weights += static_cast<double>(elements(t));
    bits += static_cast<double>(t.bytes_after) * 8;
    if (t.action == "moved") continue;
    encoded += static_cast<double>(elements(t));
    error += t.squared_error;
    norm += t.squared_norm;
    measured &= t.measured;
    outputs.mse += t.output.mse;
    outputs.kept += t.output.kept;
  }
  Table facts("ll");
  facts.fact("size", size_text(report, style));
  const bool by_outputs = report.method == "weighted" || report.method == "gptq";
  if (measured && outputs.mse > 0)
    facts.fact("outputs",
               fmt::format("error over the calibration text {} of that of mse",
                           style.bold(number(100 * outputs.kept / outputs.mse, "{:.1f} %"))));
  if (weights > 0) {
    const std::string text =
        fmt::format("{} at {:.2f} bits each", human_count(weights), bits / weights);
    const std::string loss =
        !measured || norm == 0
            ? ""
            : fmt::format(", {} error {}, SQNR {} dB", by_outputs ? "weight" : "relative",
                          style.bold(number(100 * std::sqrt(error / norm), "{:.2f} %")),
                          style.bold(number(10 * std::log10(norm / error), "{:.2f}")));
    facts.fact("weights", text + (encoded == weights ? loss : ""));
    if (encoded < weights && !loss.empty())
      facts.fact("new", human_count(encoded) + " of them" + loss);
    if (by_outputs && !loss.empty())
      facts.add({"", style.dim("larger than by mse: what counts is the error of outputs, which " +
                               report.method + " lowers")});
  }
  add_rounded(report, style, facts);
  if (!about.method.empty()) facts.fact("method", about.method);
  facts.fact("format", about.format);
  facts.fact("by", fmt::format("nvfp4.cpp {}", version()));
  facts.fact("device", describe(report.device));
  if (!report.dry_run) {
    facts.fact("time", fmt::format("{}, {:.2f} GB/s of input on {} ({} thread{})",
                                   human_duration(report.seconds),
                                   static_cast<double>(report.bytes_before) / report.seconds / 1e9,
                                   report.backend, report.threads, report.threads == 1 ? "" : "s"));
    if (report.carried_files > 0)
      facts.fact("copied", fmt::format("{} other files, {}", report.carried_files,
                                       human_bytes(report.carried_bytes)));
    if (!report.card.empty()) facts.fact("card", report.card);
    facts.fact("memory", human_bytes(report.peak_memory_bytes) + " at most");
    std::string shards = fmt::format("{} shard{}", report.shards, report.shards == 1 ? "" : "s");
    if (report.shards_reused > 0)
      shards += fmt::format(", {} of them from the interrupted run", report.shards_reused);
    if (report.ranks > 1)
      facts.fact("rank", fmt::format("{} of {}; {}", report.rank, report.ranks,
                                     report.complete ? "the output is complete"
                                                     : "the last one to end finishes the output"));
    facts.fact("output", fmt::format("{} ({})", clean(about.output.string()), shards));
    if (!report.card.empty() && report.complete)  // quantize to a folder
      facts.add_line({style.dim("upload"), fmt::format("hf upload ORG/NAME {} --private",
                                                       shell_word(about.output.string()))});
  }
  print(out + facts.text());
}

void print_warnings(const QuantizeReport& report) {
  if (report.nothing_done) return;  // the run that wrote the output printed them
  const Style style(stderr);
  for (const WarningKind& kind : kinds_of(report.warnings))
    say(wrapped(stderr,
                fmt::format("{} {}\n", style.yellow("nvfp4: warning:"), clean(kind.text()))));
}

}  // namespace nvfp4::cli
