#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "report/parts.h"
#include "report/report.h"

namespace nvfp4::report {

std::string measure(double x, const char* format, const char* unit) {
  const std::string text = number(x, format) + (*unit ? fmt::format(" {}", unit) : "");
  return std::isfinite(x) ? text : fmt::format("<span class='bad'>{}</span>", number(x, format));
}
std::string percent(double x) { return measure(100 * x, "{:.3f}", "%"); }
std::string decibels(double x) { return measure(x, "{:.2f}", "dB"); }

std::string share(std::uint64_t n, double total) {
  return fmt::format("{:.3f} %", total > 0 ? 100 * static_cast<double>(n) / total : 0.0);
}

std::string Table::html() const {
  const auto text_class = [&](std::size_t column) {
    return column + texts >= columns.size() ? " class='text'" : "";
  };
  std::string out =
      fmt::format("<div class='scroll' role='region' aria-label='{}' tabindex='0'><table>", label);
  if (!caption.empty()) out += fmt::format("<caption>{}</caption>", caption);
  out += "<thead><tr>";
  for (std::size_t c = 0; c < columns.size(); ++c)
    out += fmt::format("<th scope='col'{}>{}</th>", text_class(c), columns[c]);
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += fmt::format("<tr><th scope='row'>{}</th>", row[0]);
    for (std::size_t c = 1; c < row.size(); ++c)
      out += fmt::format("<td{}>{}</td>", text_class(c), row[c]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string details(const std::string& summary, const std::string& body) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", summary, body);
}

namespace {

/// Returns the error of b as a share of the error of c.
std::string ratio(double b, double c) {
  if (b == c) return "1.000";
  if (c == 0) return "<span class='bad'>c has none</span>";
  return measure(b / c, "{:.3f}", "");
}

/// Returns the first cells of a row: errors of b and c, and their ratio.
std::vector<std::string> row(std::string title, double b, double c) {
  return {std::move(title), percent(b), percent(c), ratio(b, c)};
}

/// The errors of a tensor in both checkpoints, 0 if it is equal to a's.
struct Pair {
  ErrorSum b, c;
  std::string form_b = "as in a", form_c = form_b;
  double error_b() const { return b.relative(); }
  double error_c() const { return c.relative(); }
};
using Pairs = std::map<std::string, Pair>;

Pairs pairs_of(const PageInput& in) {
  Pairs pairs;
  for (const TensorDifference& t : in.difference.tensors) {
    pairs[t.name].b = {t.squared_error, t.squared_norm, 1};
    pairs[t.name].form_b = t.form_b;
  }
  for (const TensorDifference& t : in.compared_with->difference.tensors) {
    pairs[t.name].c = {t.squared_error, t.squared_norm, 1};
    pairs[t.name].form_c = t.form_b;
  }
  // A tensor that is missing in one of them cannot be compared.
  for (const CompareReport* d : {&in.difference, &in.compared_with->difference})
    for (const auto* names : {&d->only_in_a, &d->only_in_b, &d->shape_mismatch})
      for (const std::string& name : *names) pairs.erase(name);
  return pairs;
}

/// Returns the pairs with errors of outputs in place of those of weights. Weights without
/// statistics are left out.
Pairs outputs_of(Pairs pairs, const PageInput& in) {
  const TensorErrors &b = in.outputs, &c = in.compared_with->outputs;
  std::erase_if(pairs, [&](const auto& p) { return !b.contains(p.first) || !c.contains(p.first); });
  for (auto& [tensor, pair] : pairs) pair.b = b.at(tensor), pair.c = c.at(tensor);
  return pairs;
}

std::string kind_table(const char* caption, const Pairs& pairs) {
  struct Sums {
    ErrorSum b, c;
    std::size_t better = 0, worse = 0, tensors = 0;
  };
  std::map<std::string, Sums> kinds;
  Sums all;
  for (const auto& [tensor, pair] : pairs)
    for (Sums* sums : {&kinds[place_of(tensor).kind], &all}) {
      sums->b.add(pair.b);
      sums->c.add(pair.c);
      sums->better += pair.error_b() < pair.error_c();
      sums->worse += pair.error_b() > pair.error_c();
      ++sums->tensors;
    }
  Table table = {
      "Side by side by kind",
      caption,
      {"kind", "error of b", "error of c", "b / c", "lower in b", "lower in c", "equal"}};
  const auto add = [&](const std::string& title, const Sums& s) {
    auto& cells = table.rows.emplace_back(row(title, s.b.relative(), s.c.relative()));
    for (const std::size_t n : {s.better, s.worse, s.tensors - s.better - s.worse})
      cells.push_back(std::to_string(n));
  };
  for (const auto& [kind, sums] : kinds) add(name(kind), sums);
  add("all kinds", all);
  return table.html();
}

/// Returns the tensors in which b is best or worst compared with c.
std::string extremes(const Pairs& pairs, bool best) {
  constexpr std::size_t kShown = 8;
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [tensor, pair] : pairs) {
    const double b = pair.error_b(), c = pair.error_c();
    if (best ? b < c : b > c) order.emplace_back(best ? b / c : (b == 0 ? 0 : c / b), &tensor);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  if (order.empty()) return {};
  Table table = {
      best ? "Lower error in b" : "Lower error in c",
      fmt::format("{} of {} tensors in which {} has the lower error, largest difference first",
                  std::min(kShown, order.size()), order.size(), best ? "b" : "c"),
      {"tensor", "error of b", "error of c", "b / c", "format of b", "format of c"},
      2};
  for (std::size_t i = 0; i < std::min(kShown, order.size()); ++i) {
    const Pair& pair = pairs.at(*order[i].second);
    auto& cells =
        table.rows.emplace_back(row(name(*order[i].second), pair.error_b(), pair.error_c()));
    cells.insert(cells.end(), {escape(pair.form_b), escape(pair.form_c)});
  }
  return table.html();
}

/// Returns the number of blocks for each binade of their scales.
std::string scale_rows(const InspectReport& b, const InspectReport& c) {
  if (b.scales.size() != 256 || c.scales.size() != 256) return {};
  double all_b = 0, all_c = 0;
  for (std::size_t code = 0; code < 0x7F; ++code) {
    all_b += static_cast<double>(b.scales[code]);
    all_c += static_cast<double>(c.scales[code]);
  }
  Table table = {"Block scales side by side",
                 "Block scales by the power of two below them",
                 {"from", "of b", "of c"}};
  for (std::size_t binade = 0; binade < 16; ++binade) {
    std::uint64_t in_b = 0, in_c = 0;
    for (std::size_t code = 8 * binade; code < std::min<std::size_t>(8 * binade + 8, 0x7F);
         ++code) {
      in_b += b.scales[code];
      in_c += c.scales[code];
    }
    table.rows.push_back(
        {binade == 0 ? "below 2⁻⁶" : fmt::format("2<sup>{}</sup>", static_cast<int>(binade) - 7),
         share(in_b, all_b), share(in_c, all_c)});
  }
  return table.html();
}

}  // namespace

std::string side_by_side(const PageInput& in) {
  if (!in.compared_with) return {};
  const Pairs pairs = pairs_of(in);
  const InspectReport &b = in.b, &c = in.compared_with->inspected;
  std::string out = fmt::format(
      "<p>Size of b: <b>{}</b>; of c: <b>{}</b>. Errors are relative to a. A ratio below 1: b has "
      "the lower error.</p>\n",
      human_bytes(b.bytes), human_bytes(c.bytes));
  if (pairs.empty()) return out + "<p>b and c have the values of a.</p>\n";
  const Pairs outputs = outputs_of(pairs, in);
  if (!outputs.empty())
    out += fmt::format("<p>{}</p>\n", kWhyOutputs) +
           kind_table("Output error over the calibration text, by kind", outputs);
  out += kind_table(outputs.empty() ? "Tensors that b or c changed, by kind"
                                    : "Weight error of tensors that b or c changed, by kind",
                    pairs);
  const Pairs& first = outputs.empty() ? pairs : outputs;
  out += extremes(first, true) + extremes(first, false);
  if (const std::string scales = scale_rows(b, c); !scales.empty())
    out += details("Block scales side by side", scales);
  return out;
}

}  // namespace nvfp4::report
