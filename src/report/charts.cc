
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "nvfp4/format.h"
#include "report/parts.h"
#include "report/report.h"

namespace nvfp4::report {
namespace {

/// Markers that make series distinguishable without colors.
constexpr const char* kMarkers =
    "<svg width='0' height='0' aria-hidden='true' class='defs'><defs>"
    "<path id='m0' d='M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z'/>"
    "<path id='m1' d='M-3.5 -3.5h7v7h-7z'/>"
    "<path id='m2' d='M0 -5L5 0L0 5L-5 0z'/>"
    "<path id='m3' d='M0 -4.5L4.5 3.5H-4.5z'/>"
    "<path id='m4' d='M0 4.5L4.5 -3.5H-4.5z'/>"
    "<path id='m5' d='M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z'/>"
    "<path id='m6' d='M-4.5 -1.5h9v3h-9z'/>"
    "<path id='m7' d='M-1.5 -4.5h3v9h-3z'/>"
    "</defs></svg>\n";

/// Returns a position in percent of the plot. 0 is the left or the top.
std::string css_percent(double share) { return fmt::format("{:.6g}%", 100 * share); }

std::string legend(std::span<const Kind> kinds) {
  std::string out = "<ul class='legend'>";
  for (std::size_t i = 0; i < kinds.size(); ++i)
    out += fmt::format(
        "<li><svg width='14' height='14' viewBox='-7 -7 14 14' class='s{0}' aria-hidden='true'>"
        "<use href='#m{0}'/></svg> {1}</li>",
        i, name(kinds[i].name));
  return out + "</ul>\n";
}

/// Returns a label such as "9.25 %", with enough digits for `step`.
std::string percent_label(double value, double step) {
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(100 * step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f} %", 100 * value, digits);
}

struct Plot {
  Axis y;
  std::int64_t first = 0, last = 0;  ///< layers

  double at_x(std::int64_t layer) const {
    return first == last ? 0.5
                         : static_cast<double>(layer - first) / static_cast<double>(last - first);
  }
  double at_y(double error) const { return 1 - (error - y.low) / (y.high() - y.low); }
};

std::string series(const Kind& kind, std::size_t index, const Plot& plot) {
  std::string lines, markers;
  const std::pair<const std::int64_t, ErrorSum>* before = nullptr;
  for (const auto& layer : kind.layers) {
    const double error = layer.second.relative();
    if (!std::isfinite(error)) {
      before = nullptr;
      continue;
    }
    const std::string x = css_percent(plot.at_x(layer.first)), y = css_percent(plot.at_y(error));
    if (before != nullptr)
      lines += fmt::format("<line x1='{}' y1='{}' x2='{}' y2='{}'/>",
                           css_percent(plot.at_x(before->first)),
                           css_percent(plot.at_y(before->second.relative())), x, y);
    markers += fmt::format(
        "<svg x='{}' y='{}' overflow='visible'><use href='#m{}'/><title>{}, layer {}: {:.3f} "
        "%</title></svg>",
        x, y, index, escape(kind.name), layer.first, 100 * error);
    before = &layer;
  }
  return fmt::format("<g class='s{}'>{}{}</g>\n", index, lines, markers);
}

/// Adds the labels and gridlines of about eight layers.
void label_layers(const Plot& plot, std::string& labels) {
  const std::int64_t range = plot.last - plot.first;
  std::int64_t step = 1;
  for (std::int64_t power = 1; range / step > 8; power *= 10)
    for (const std::int64_t next : {2, 5, 10})
      if (range / step > 8) step = next * power;
  for (std::int64_t layer = plot.first; layer <= plot.last; layer += step)
    labels += fmt::format("<span style='left:{}'>{}</span>", css_percent(plot.at_x(layer)), layer);
}

struct Bar {
  double value;
  std::string title;
};

/// Returns the scale of the bars, such as "up to 8.61 %".
std::string highest(const std::vector<Bar>& all, double total) {
  double largest = 0;
  for (const Bar& bar : all) largest = std::max(largest, bar.value);
  return fmt::format("up to {:.2f} %", total > 0 ? 100 * largest / total : 0);
}

/// Returns bars on a common base, side by side.
std::string bars(const std::vector<Bar>& all, std::string_view description) {
  double largest = 0;
  for (const Bar& bar : all) largest = std::max(largest, bar.value);
  std::string out =
      fmt::format("<svg class='bars' role='img' aria-label='{}'>", escape(description));
  const double width = 1 / static_cast<double>(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double height = largest > 0 ? all[i].value / largest : 0;
    out += fmt::format("<rect x='{}' y='{}' width='{}' height='{}'><title>{}</title></rect>",
                       css_percent((static_cast<double>(i) + 0.1) * width), css_percent(1 - height),
                       css_percent(0.8 * width), css_percent(height), escape(all[i].title));
  }
  return out + "<line x1='0' y1='100%' x2='100%' y2='100%' class='base'/></svg>\n";
}

}  // namespace

Axis axis_around(double low, double high) {
  if (!(high - low > 1e-9 * std::fabs(high))) {
    const double margin = high != 0 ? 0.05 * std::fabs(high) : 0.01;
    low -= margin;
    high += margin;
  }
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double round : {5.0, 2.0, 1.0})
    if (round * power >= rough) step = round * power;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  return {first * step, step, static_cast<int>(last - first) + 1};
}

std::string error_chart(const std::vector<Kind>& kinds, const char* title) {
  std::vector<Kind> shown;
  for (const Kind& kind : kinds)
    if (!kind.layers.empty() && shown.size() < kSeries) shown.push_back(kind);
  double low = std::numeric_limits<double>::infinity(), high = 0;
  Plot plot{{}, std::numeric_limits<std::int64_t>::max(), 0};
  for (const Kind& kind : shown)
    for (const auto& [layer, sum] : kind.layers) {
      const double error = sum.relative();
      if (!std::isfinite(error)) continue;
      low = std::min(low, error);
      high = std::max(high, error);
      plot.first = std::min(plot.first, layer);
      plot.last = std::max(plot.last, layer);
    }
  if (low > high) return {};
  plot.y = axis_around(low, high);

  std::string grid, y_labels, x_labels, lines;
  for (int i = 0; i < plot.y.count; ++i) {
    const double value = plot.y.low + plot.y.step * i;
    const std::string y = css_percent(plot.at_y(value));
    grid += fmt::format("<line x1='0' y1='{0}' x2='100%' y2='{0}'/>", y);
    y_labels += fmt::format("<span style='top:{}'>{}</span>", y, percent_label(value, plot.y.step));
  }
  label_layers(plot, x_labels);
  for (std::size_t i = 0; i < shown.size(); ++i) lines += series(shown[i], i, plot);
  return fmt::format(
      "{}<figure><figcaption>{} of each layer, by kind of tensor{}. The axis starts at "
      "{}.</figcaption>\n{}<div class='plot'><div class='ys' aria-hidden='true'>{}</div>\n"
      "<svg role='img' aria-label='{} by layer, {:.3f} to {:.3f} %: the table below "
      "has the numbers'><g class='grid'>{}</g>\n{}</svg>\n<div class='xs' "
      "aria-hidden='true'>{}</div><p class='axis' aria-hidden='true'>layer</p></div></figure>\n",
      kMarkers, title, kinds.size() > shown.size() ? ": the kinds with the most weights" : "",
      percent_label(plot.y.low, plot.y.step), legend(shown), y_labels, title, 100 * low, 100 * high,
      grid, lines, x_labels);
}

std::string curve_chart(const BudgetCurve& curve) {
  std::vector<BudgetPoint> shown;
  for (const BudgetPoint& p : curve.points)
    if (p.error > 0 && std::isfinite(p.error) && std::isfinite(p.budget)) shown.push_back(p);
  if (shown.size() < 2 || !(shown.back().budget > shown.front().budget)) return {};
  const char* unit = curve.of_bits ? "bits" : "% W4A16";
  const char* axis = curve.of_bits ? "bits per weight" : "% of multiplications in W4A16";
  const double most = shown.front().error, low = shown.front().budget, high = shown.back().budget;
  double least = most;
  for (const BudgetPoint& p : shown) least = std::min(least, p.error);
  const double decades = std::max(1.0, std::ceil(std::log10(most / least) - 1e-9));
  const auto at_x = [&](double budget) { return css_percent((budget - low) / (high - low)); };
  const auto at_y = [&](double error) {
    return css_percent(std::max(0.0, std::log10(most / error)) / decades);
  };
  std::string grid, y_labels, x_labels, lines;
  for (int i = 0; i <= static_cast<int>(decades); ++i) {
    const double part = std::pow(10, -i);
    grid += fmt::format("<line x1='0' y1='{0}' x2='100%' y2='{0}'/>", at_y(most * part));
    y_labels += fmt::format("<span style='top:{}'>{:.4g} %</span>", at_y(most * part), 100 * part);
  }
  const Axis x = axis_around(low, high);
  for (int i = 0; i < x.count; ++i)
    if (const double budget = x.low + x.step * i; budget >= low && budget <= high)
      x_labels += fmt::format("<span style='left:{}'>{:.4g}</span>", at_x(budget), budget);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const BudgetPoint &p = shown[i], &before = shown[i == 0 ? 0 : i - 1];
    lines += fmt::format(
        "<line x1='{}' y1='{}' x2='{}' y2='{}'><title>{:.3f} {}: {:.4g} %</title></line>",
        at_x(before.budget), at_y(before.error), at_x(p.budget), at_y(p.error), p.budget, unit,
        100 * p.error / most);
  }
  return fmt::format(
      "<figure><figcaption>Least error for a budget, relative to {:.3f} {}. The axis is "
      "logarithmic.</figcaption>\n<div class='plot'><div class='ys' aria-hidden='true'>{}</div>"
      "\n<svg role='img' aria-label='Error over {}, {:.3f} to {:.3f}: the table below "
      "has the numbers'><g class='grid'>{}</g>\n<g class='s0'>{}</g></svg>\n<div class='xs' "
      "aria-hidden='true'>{}</div><p class='axis' aria-hidden='true'>{}</p></div></figure>\n",
      low, unit, y_labels, axis, low, high, grid, lines, x_labels, axis);
}

std::string code_chart(const std::vector<std::uint64_t>& counts) {
  double total = 0;
  for (const std::uint64_t n : counts) total += static_cast<double>(n);
  std::vector<Bar> all;
  std::string labels;
  for (int i = 0; i < 16; ++i) {
    const int code = i < 8 ? 15 - i : i - 8;  // order of the codes: -6 ... -0, 0 ... 6
    const float value = E2M1{static_cast<std::uint8_t>(code)}.to_float();
    const std::string text = fmt::format("{}{}", code >= 8 ? "−" : "", std::fabs(value));
    const auto n = static_cast<double>(counts[static_cast<std::size_t>(code)]);
    all.push_back({n, fmt::format("{}: {:.2f} %", text, total > 0 ? 100 * n / total : 0)});
    labels += fmt::format("<span>{}</span>", text);
  }
  return fmt::format(
             "<figure><figcaption>Codes: how often each value of E2M1 is used, {}</figcaption>\n",
             highest(all, total)) +
         bars(all, "Histogram of codes; the table below has the numbers") +
         "<div class='under codes' aria-hidden='true'>" + labels + "</div></figure>\n";
}

std::string scale_chart(const std::vector<std::uint64_t>& counts) {
  constexpr int kCodes = 0x7F;  // 0 to 448
  double total = 0;
  for (const std::uint64_t n : counts) total += static_cast<double>(n);
  std::vector<Bar> all;
  std::string labels;
  for (int code = 0; code < kCodes; ++code) {
    const float value = E4M3{static_cast<std::uint8_t>(code)}.to_float();
    const auto n = static_cast<double>(counts[static_cast<std::size_t>(code)]);
    all.push_back({n, fmt::format("{:.6g}: {:.3f} %", value, total > 0 ? 100 * n / total : 0)});
    if (code % 16 == 8)  // powers of two
      labels += fmt::format("<span style='left:{}'>2<sup>{}</sup></span>",
                            css_percent((code + 0.5) / kCodes), code / 8 - 7);
  }
  return fmt::format(
             "<figure><figcaption>Block scales: how often each value of E4M3 is used, from 0 to "
             "448, {}</figcaption>\n",
             highest(all, total)) +
         bars(all, "Histogram of block scales; the table below has the numbers") +
         "<div class='under scales' aria-hidden='true'>" + labels + "</div></figure>\n";
}

}  // namespace nvfp4::report
