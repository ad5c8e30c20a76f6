#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/families/model_config.h"
#include "checkpoint/source/quantized_tensors.h"
#include "checkpoint/statistics/statistics.h"
#include "nvfp4/format.h"
#include "nvfp4/runtime.h"
#include "report/parts.h"
#include "report/report.h"

namespace nvfp4::report {
namespace {

/// The content security policy. A browser loads and runs nothing, even if the page has foreign
/// content.
constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'";
constexpr std::size_t kMostNames = 200;  // limit for each list

std::string section(const char* id, const char* title, const std::string& body) {
  if (body.empty()) return {};
  return fmt::format("<section aria-labelledby='{0}'><h2 id='{0}'>{1}</h2>\n{2}</section>\n", id,
                     title, body);
}

ErrorSum sum_of(const TensorErrors& outputs) {
  ErrorSum sum;
  for (const auto& [tensor, error] : outputs) sum.add(error);
  return sum;
}

/// Returns the output errors that are known, with words for their checkpoint.
std::vector<std::pair<const char*, const TensorErrors*>> outputs_of(const PageInput& in) {
  std::vector<std::pair<const char*, const TensorErrors*>> all;
  const bool both = in.compared_with && !in.compared_with->outputs.empty();
  if (!in.outputs.empty()) all.emplace_back(both ? " of b" : "", &in.outputs);
  if (both) all.emplace_back(" of c", &in.compared_with->outputs);
  return all;
}

std::string header(const PageInput& in) {
  const CompareReport& d = in.difference;
  const auto tile = [](const std::string& value, const std::string& what) {
    return fmt::format("<li><b>{}</b><span>{}</span></li>", value, what);
  };
  std::string out = fmt::format(
      "<header><h1>What NVFP4 changed</h1>\n<dl class='paths'><dt class='soft'>a: "
      "original</dt><dd>{}"
      "</dd><dt class='soft'>b: quantized</dt><dd>{}</dd></dl>\n<ul class='tiles'>",
      name(in.a.path), name(in.b.path));
  if (in.compared_with)
    out.insert(out.find("</dl>"), fmt::format("<dt class='soft'>c: compared with</dt><dd>{}</dd>",
                                              name(in.compared_with->inspected.path)));
  for (const auto& [which, outputs] : outputs_of(in))
    out += tile(percent(sum_of(*outputs).relative()),
                fmt::format("output error{}, calibration text", which));
  out += tile(percent(d.relative_error), in.outputs.empty() ? "relative error, tensors that differ"
                                                            : "error of weights that differ");
  out += tile(percent(d.median_relative_error), "median of these tensors");
  out += tile(percent(d.tensors.empty() ? 0 : d.tensors.front().relative_error), "worst tensor");
  out += tile(decibels(d.sqnr_db), "signal to quantization noise");
  out += tile(measure(d.max_error, "{:.3g}", ""), "largest |a − b|");
  out += tile(fmt::format("{}", d.tensors.size()), "tensors differ");
  out += tile(fmt::format("{}", d.identical), "tensors are identical");
  out += tile(human_bytes(in.b.bytes), "size, from " + human_bytes(in.a.bytes));
  return out + "</ul></header>\n";
}

std::string size_section(const PageInput& in) {
  const double largest = static_cast<double>(std::max({in.a.bytes, in.b.bytes, std::uint64_t{1}}));
  std::string out = "<div class='sizes'>";
  for (const auto& [title, report] : {std::pair("before", &in.a), std::pair("after", &in.b)}) {
    const double bits = report->parameters == 0 ? 0
                                                : 8 * static_cast<double>(report->bytes) /
                                                      static_cast<double>(report->parameters);
    out += fmt::format(
        "<div>{}: <b>{}</b>, {} parameters, {:.2f} bits each<div class='bar' aria-hidden='true'>"
        "<i style='width:{:.3f}%'></i></div></div>\n",
        title, human_bytes(report->bytes), human_count(static_cast<double>(report->parameters)),
        bits, 100 * static_cast<double>(report->bytes) / largest);
  }
  out += "</div>\n";
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> forms;
  for (const InspectedTensor& t : in.a.tensors) forms[form_of(t)].first += t.bytes;
  for (const InspectedTensor& t : in.b.tensors) forms[form_of(t)].second += t.bytes;
  Table table = {
      "Size by format", "Bytes of tensors, scales included", {"format", "before", "after"}};
  for (const auto& [form, bytes] : forms)
    table.rows.push_back({escape(form), human_bytes(bytes.first), human_bytes(bytes.second)});
  return out + details("Size by format", table.html());
}

std::string kind_table(const std::vector<Kind>& kinds, const char* label, const char* caption) {
  Table table = {
      label, caption, {"kind", "relative error", "SQNR", "tensors", "worst layer", "its error"}};
  for (const Kind& kind : kinds) {
    const auto worst = kind.worst_layer();
    table.rows.push_back({name(kind.name), percent(kind.total.relative()),
                          decibels(kind.total.sqnr_db()), fmt::format("{}", kind.total.tensors),
                          worst ? fmt::format("{}", *worst) : "–",
                          worst ? percent(kind.layers.at(*worst).relative()) : "–"});
  }
  return table.html();
}

/// Returns the errors of outputs, if they are known, then those of weights.
std::string error_section(const PageInput& in) {
  const std::vector<Kind> kinds = kinds_of(errors_of(in.difference));
  if (kinds.empty()) return "<p>The checkpoints hold the same values in the same formats.</p>\n";
  if (in.outputs.empty())
    return error_chart(kinds, "Relative error") +
           kind_table(kinds, "Error by kind", "All kinds of tensors that differ");
  const std::vector<Kind> outputs = kinds_of(in.outputs);
  return fmt::format("<p>{}</p>\n", kWhyOutputs) + error_chart(outputs, "Relative output error") +
         kind_table(outputs, "Output error by kind of tensor",
                    "Output error ‖X (a − b)ᵀ‖ / ‖X aᵀ‖ over the calibration text") +
         kind_table(kinds, "Error by kind", "Weight error of all kinds of tensors that differ");
}

std::string worst_section(const PageInput& in) {
  const auto& tensors = in.difference.tensors;
  if (tensors.empty()) return {};
  const std::size_t shown = std::min(in.worst, tensors.size());
  Table table = {"Worst tensors",
                 fmt::format("{} of {}, largest relative error first", shown, tensors.size()),
                 {"tensor", "relative error", "SQNR", "largest |a − b|", "shape", "format"},
                 2};
  for (std::size_t i = 0; i < shown; ++i) {
    const TensorDifference& t = tensors[i];
    table.rows.push_back({name(t.name), percent(t.relative_error), decibels(t.sqnr_db),
                          measure(t.max_error, "{:.3g}", ""), escape(shape_text(t.shape)),
                          fmt::format("{} → {}", escape(t.form_a), escape(t.form_b))});
  }
  return table.html();
}

std::string code_table(const std::vector<std::uint64_t>& codes, double total) {
  Table table = {"Codes", "", {"magnitude", "negative", "positive"}};
  for (std::size_t m = 0; m < 8; ++m)
    table.rows.push_back({fmt::format("{}", E2M1{static_cast<std::uint8_t>(m)}.to_float()),
                          share(codes[m + 8], total), share(codes[m], total)});
  return table.html();
}

std::string scale_table(const std::vector<std::uint64_t>& scales, double total) {
  Table table = {"Block scales", "", {"block scales", "blocks", "share"}};
  for (std::size_t binade = 0; binade < 16; ++binade) {
    const std::size_t first = 8 * binade, last = std::min<std::size_t>(first + 7, 0x7E);
    std::uint64_t n = 0;
    for (std::size_t code = first; code <= last; ++code) n += scales[code];
    table.rows.push_back(
        {fmt::format("{:.6g} to {:.6g}", E4M3{static_cast<std::uint8_t>(first)}.to_float(),
                     E4M3{static_cast<std::uint8_t>(last)}.to_float()),
         fmt::format("{}", n), share(n, total)});
  }
  return table.html();
}

std::string histogram_section(const InspectReport& b) {
  std::vector<std::uint64_t> codes(16, 0);
  for (const InspectedTensor& t : b.tensors)
    for (std::size_t c = 0; c < t.codes.size(); ++c) codes[c] += t.codes[c];
  double elements = 0, blocks = 0, broken = 0;
  for (const std::uint64_t n : codes) elements += static_cast<double>(n);
  for (std::size_t v = 0; v < b.scales.size(); ++v) {
    blocks += static_cast<double>(b.scales[v]);
    if (v >= 0x7F) broken += static_cast<double>(b.scales[v]);
  }
  if (elements == 0 || b.scales.size() != 256) return {};
  std::string out = code_chart(codes) + scale_chart(b.scales);
  if (broken > 0)
    out +=
        fmt::format("<p class='bad'>{} block scales are negative or NaN; see nvfp4 verify.</p>\n",
                    human_count(broken));
  return out + details("Codes in numbers", code_table(codes, elements)) +
         details("Block scales in numbers", scale_table(b.scales, blocks));
}

/// The counts of weights of one kind, in one layer or in all.
struct SharesOfKind {
  std::array<std::int64_t, 4> rows{};
  OutputError output;
  void add(const MethodShares& w) {
    for (std::size_t c = 0; c < rows.size(); ++c) rows[c] += w.rows[c];
    output.mse += w.output.mse;
    output.kept += w.output.kept;
  }
};

std::vector<std::string> shares_row(std::string title, const SharesOfKind& d) {
  double all = 0;
  for (const std::int64_t n : d.rows) all += static_cast<double>(n);
  std::vector<std::string> cells = {std::move(title),
                                    d.output.mse > 0 ? percent(d.output.kept / d.output.mse) : "–"};
  for (const std::int64_t n : d.rows) cells.push_back(share(static_cast<std::uint64_t>(n), all));
  return cells;
}

Table shares_table(const char* label, const char* first) {
  return {label,
          "Output error ‖X (w − ŵ)‖² over the calibration text, relative to mse; share of rows "
          "for which each method was best",
          {first, "output error", "mse", "weighted", "GPTQ", "descent"}};
}

std::string shares_tables(const std::vector<MethodShares>& weights) {
  if (weights.empty()) return {};
  std::map<std::string, SharesOfKind> kinds;
  std::map<std::pair<std::int64_t, std::string>, SharesOfKind> layers;
  for (const MethodShares& w : weights) {
    const Place place = place_of(w.name);
    kinds[place.kind].add(w);
    if (place.layer) layers[{*place.layer, place.kind}].add(w);
  }
  Table of_kinds = shares_table("Output error by kind", "kind"),
        of_layers = shares_table("Output error by layer", "layer");
  for (const auto& [kind, d] : kinds) of_kinds.rows.push_back(shares_row(name(kind), d));
  for (const auto& [key, d] : layers)
    of_layers.rows.push_back(shares_row(fmt::format("{} · {}", key.first, name(key.second)), d));
  return of_kinds.html() + details("Output error by layer", of_layers.html());
}

/// Returns the table of tokens of the experts of each layer. Experts with few tokens are quantized
/// by the statistics of others.
std::string token_table(const std::map<std::string, double>& tokens) {
  std::map<std::pair<std::int64_t, std::string>, std::vector<double>> layers;
  for (const auto& [weight, count] : tokens)
    if (const Place place = place_of(weight);
        place.layer && place.kind.find("experts.*") != std::string::npos)
      layers[{*place.layer, place.kind}].push_back(count);
  if (layers.empty()) return {};
  Table table = {"Tokens of experts",
                 "Tokens of the calibration text for each expert",
                 {"layer", "experts", "fewest", "median", "most", "without any"}};
  for (auto& [key, counts] : layers) {
    std::ranges::sort(counts);
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells = {fmt::format("{} · {}", key.first, name(key.second)), fmt::format("{}", counts.size())};
    for (const double n : {counts.front(), counts[counts.size() / 2], counts.back()})
      cells.push_back(fmt::format("{:.0f}", n));
    cells.push_back(fmt::format("{}", std::ranges::count(counts, 0.0)));
  }
  return table.html();
}

std::string curve_section(const BudgetCurve& curve) {
  const std::string chart = curve_chart(curve);
  if (chart.empty()) return {};
  Table table = {"Error over the budget",
                 "Least summed error for a budget, relative to the smallest budget",
                 {curve.of_bits ? "bits per weight" : "% in W4A16", "error"}};
  for (const BudgetPoint& p : curve.points)
    table.rows.push_back({fmt::format("{:.3f}", p.budget),
                          measure(100 * p.error / curve.points.front().error, "{:.4g}", " %")});
  return chart + table.html();
}

std::string calibration_section(const PageInput& in) {
  return shares_tables(in.method_shares) + token_table(in.tokens);
}

std::string names(const char* title, const std::vector<std::string>& all) {
  if (all.empty()) return {};
  std::string items;
  const std::size_t shown = std::min(all.size(), kMostNames);
  for (std::size_t i = 0; i < shown; ++i) items += fmt::format("<li>{}</li>\n", name(all[i]));
  if (shown < all.size()) items += fmt::format("<li>and {} more</li>\n", all.size() - shown);
  return details(fmt::format("{}: {}", title, all.size()), "<ul>\n" + items + "</ul>\n");
}

std::string unmatched_section(const CompareReport& d) {
  return names("only in a", d.only_in_a) + names("only in b", d.only_in_b) +
         names("not comparable", d.shape_mismatch);
}

}  // namespace

std::string page(const PageInput& in) {
  return fmt::format(
             "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n"
             "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
             "<meta http-equiv='Content-Security-Policy' content=\"{}\">\n"
             "<meta name='color-scheme' content='light dark'>\n"
             "<title>nvfp4 compare: {}</title>\n<style>\n{}</style></head>\n<body>\n",
             kPolicy, escape(in.b.path), kStyle) +
         header(in) + "<main>\n" + section("error", "Error by layer", error_section(in)) +
         section("against", "Side by side", side_by_side(in)) +
         section("bits", "Error over the budget", curve_section(in.curve)) +
         section("calibration", "Calibration", calibration_section(in)) +
         section("histograms", "Codes and block scales of b", histogram_section(in.b)) +
         section("size", "Size", size_section(in)) +
         section("worst", "Worst tensors", worst_section(in)) +
         section("unmatched", "Tensors not compared", unmatched_section(in.difference)) +
         fmt::format(
             "</main>\n<footer>Relative error is ‖a − b‖ / ‖a‖ (L2); SQNR is 20 log₁₀ of its "
             "inverse. Experts of a layer count as one kind. Written by nvfp4 {}.</footer>\n"
             "</body></html>\n",
             version());
}

namespace {

/// Adds what the statistics say: tokens, and output errors of b and of the other checkpoint.
void add_statistics(PageInput& input, const std::filesystem::path& a,
                    const std::filesystem::path& b, const PageExtras& extras) {
  const checkpoint::CheckpointReader reader(a);
  checkpoint::ModelConfig config;
  if (!reader.config_text().empty())
    config = checkpoint::parse_model_config(reader.config_text(), reader.config_file());
  const auto statistics = checkpoint::open_statistics(extras.statistics, config);
  constexpr std::string_view kWeight = ".weight";
  for (const TensorDifference& t : input.difference.tensors)
    if (t.name.ends_with(kWeight))
      if (const auto* s =
              statistics->find(std::string_view(t.name).substr(0, t.name.size() - kWeight.size())))
        input.tokens[t.name] = s->count;
  input.outputs = output_errors(reader, checkpoint::CheckpointReader(b), *statistics);
  if (input.compared_with)
    input.compared_with->outputs =
        output_errors(reader, checkpoint::CheckpointReader(extras.against), *statistics);
}

}  // namespace

std::string page_of(CompareReport difference, const std::filesystem::path& a,
                    const std::filesystem::path& b, std::size_t worst,
                    const std::function<void(const Progress&)>& progress,
                    const PageExtras& extras) {
  PageInput input{.difference = std::move(difference), .a = {}, .b = {}};
  input.worst = std::max(input.worst, worst);
  if (!extras.run.empty()) {
    input.method_shares = method_shares(extras.run);
    input.curve = budget_curve(extras.run);
  }
  if (!extras.against.empty())
    input.compared_with = ComparedWith{
        compare_checkpoints(a, extras.against, progress),
        inspect_checkpoint(
            {.path = extras.against, .tensor = {}, .histograms = true, .progress = progress})};
  if (!extras.statistics.empty()) add_statistics(input, a, b, extras);
  input.a = inspect_checkpoint({.path = a, .tensor = {}, .histograms = false, .progress = {}});
  input.b = inspect_checkpoint({.path = b, .tensor = {}, .histograms = true, .progress = progress});
  return page(input);
}

}  // namespace nvfp4::report
