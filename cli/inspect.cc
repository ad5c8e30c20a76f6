#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/compare/inspect_blocks.h"
#include "checkpoint/match/pattern.h"
#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "report/report.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

class Range {
 public:
  void add(double x) {
    low_ = std::min(low_, x);
    high_ = std::max(high_, x);
    nan_ |= std::isnan(x);
  }
  bool empty() const { return low_ > high_ && !nan_; }
  std::string text() const {
    if (nan_) return "some are NaN";
    if (low_ == high_) return number(low_, "{:.4g}");
    return number(low_, "{:.4g}") + " to " + number(high_, "{:.4g}");
  }

 private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  bool nan_ = false;
};

struct TensorGroup {
  std::string name, form, shape;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};

std::string group_table(const InspectReport& report, const Style& style) {
  std::vector<TensorGroup> groups;
  std::map<std::array<std::string, 3>, std::size_t> index;
  for (const InspectedTensor& t : report.tensors) {
    const std::array<std::string, 3> key{checkpoint::template_of(checkpoint::module_of(t.name)),
                                         report::form_of(t), shape_text(t.shape)};
    const auto [it, fresh] = index.try_emplace(key, groups.size());
    if (fresh) groups.push_back({key[0], key[1], key[2]});
    groups[it->second].count += 1;
    groups[it->second].bytes += t.bytes;
  }
  Table table("srllr");
  table.title({"tensors", "count", "form", "shape", "size"});
  for (const TensorGroup& g : groups)
    table.add({clean(g.name), fmt::format("{}", g.count),
               g.form == "NVFP4" ? style.green(g.form) : g.form, g.shape, human_bytes(g.bytes)});
  return table.text();
}

std::string bar(double share, double largest, std::size_t width) {
  const double eighths = largest > 0 ? share / largest * static_cast<double>(width) * 8 : 0;
  const auto n = static_cast<std::size_t>(std::lround(eighths));
  std::string out;
  if (!utf8()) return std::string(n / 8, '#');
  const char* part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (std::size_t i = 0; i < n / 8; ++i) out += "█";
  return out + part[n % 8];
}

std::string histogram(const std::array<std::uint64_t, 16>& codes, const Style& style) {
  double total = 0, largest = 0;
  for (const std::uint64_t n : codes) {
    total += static_cast<double>(n);
    largest = std::max(largest, static_cast<double>(n));
  }
  if (total == 0) return {};
  Table table("rrlrl");
  table.title({"code", "-", "", "+", ""});
  const auto width =
      static_cast<std::size_t>(std::clamp((columns(stdout) - 28) / 2, 4, 20));  // of a bar
  for (std::size_t m = 0; m < 8; ++m) {
    const auto cell = [&](std::size_t code) {
      return fmt::format("{:.2f} %", 100 * static_cast<double>(codes[code]) / total);
    };
    std::string negative = bar(static_cast<double>(codes[m + 8]), largest, width);
    negative.append(width - std::min(width, display_width(negative)), ' ');
    table.add({number(E2M1{static_cast<std::uint8_t>(m)}.to_float(), "{}"), cell(m + 8),
               style.cyan(negative), cell(m),
               style.cyan(bar(static_cast<double>(codes[m]), largest, width))});
  }
  return table.text();
}

/// Returns two lines of eight elements for each block, after its columns and scale.
std::string block_table(const std::vector<InspectedBlock>& blocks) {
  if (blocks.empty()) return {};
  Table table("lrl");
  table.title({fmt::format("row {}", blocks[0].row), "scale", "elements"});
  for (const InspectedBlock& b : blocks) {
    std::string lines[2];
    for (std::size_t i = 0; i < b.elements.size(); ++i)
      lines[i / 8] += fmt::format("{:>5g}", b.elements[i]);
    table.add(
        {fmt::format("{} to {}", b.column, b.column + 15), number(b.scale, "{:g}"), lines[0]});
    table.add({"", "", lines[1]});
  }
  return table.text();
}

/// Returns the report with the "blocks" of its only tensor.
std::string json_text(const InspectReport& report, const std::vector<InspectedBlock>& blocks) {
  if (blocks.empty()) return to_json(report);
  auto json = nlohmann::ordered_json::parse(to_json(report));
  auto& all = json["tensors"][0]["blocks"] = nlohmann::ordered_json::array();
  for (const InspectedBlock& b : blocks) {
    auto& block = all.emplace_back(nlohmann::ordered_json{
        {"row", b.row}, {"column", b.column}, {"scale", nullptr}, {"elements", b.elements}});
    if (std::isfinite(b.scale)) block["scale"] = b.scale;
  }
  return json.dump(2);
}

std::string scheme_text(const InspectReport& r) {
  if (r.scheme.empty())
    return r.format == "safetensors" || r.format == "gguf" ? "not quantized" : r.format;
  if (!r.scheme.starts_with("w4")) return r.format;
  return fmt::format("{}, {} ({})", r.format, r.scheme,
                     r.scheme == "w4a4" ? "4-bit weights and activations" : "4-bit weights");
}

std::string text(const InspectReport& report, const std::vector<InspectedBlock>& blocks,
                 const InspectArguments& arguments) {
  const Style style(stdout);
  std::set<std::string> files;
  Range scales, globals, inputs;
  std::array<std::uint64_t, 16> codes{};
  for (const InspectedTensor& t : report.tensors) {
    files.insert(t.file);
    if (t.scheme != "nvfp4") continue;
    globals.add(t.global_scale);
    if (t.input_scale) inputs.add(*t.input_scale);
    if (t.codes.empty()) continue;
    scales.add(t.scale_min);
    scales.add(t.scale_max);
    for (std::size_t c = 0; c < codes.size(); ++c) codes[c] += t.codes[c];
  }
  std::string out = style.bold(clean(report.path)) + '\n';
  if (!report.complete)
    out +=
        style.yellow("incomplete: an interrupted run; the same command with --resume finishes it") +
        '\n';
  Table facts("ll");
  const auto fact = [&](const char* name, std::string value) {
    facts.fact(name, std::move(value));
  };
  if (arguments.tensor) {
    const InspectedTensor& t = report.tensors.front();
    fact("tensor", clean(t.name));
    fact("form", report::form_of(t));
    fact("shape", shape_text(t.shape));
    fact("size", human_bytes(t.bytes));
    fact("file", clean(t.file));
  } else {
    fact("scheme", scheme_text(report));
    if (!report.model_type.empty()) fact("model", clean(report.model_type));
    fact("parameters", human_count(static_cast<double>(report.parameters)));
    fact("size", fmt::format("{} in {} tensors, {} file{}", human_bytes(report.bytes),
                             report.tensors.size(), files.size(), files.size() == 1 ? "" : "s"));
  }
  if (!scales.empty()) fact("block scales", scales.text());
  if (!globals.empty()) fact("global scales", globals.text());
  if (!inputs.empty()) fact("input scales", inputs.text());
  out += '\n' + facts.text();
  if (!arguments.tensor) out += '\n' + group_table(report, style);
  const std::string counts = histogram(codes, style);
  const std::string shown = block_table(blocks);
  if (!shown.empty()) out += '\n' + shown;
  return out + (counts.empty() ? "" : '\n' + counts);
}

void run(InspectArguments& options) {
  const InspectReport report = [&] {
    ProgressBar progress("inspect", options.quiet);
    options.progress = progress.callback();
    return inspect_checkpoint(options);
  }();
  std::vector<InspectedBlock> blocks;
  if (options.tensor && options.histograms)
    blocks = inspect_blocks(options.path, *options.tensor, options.row, options.blocks);
  print(options.json ? json_text(report, blocks) + "\n" : text(report, blocks, options));
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CommandLine line(app, "inspect", *arguments);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
