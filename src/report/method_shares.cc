#include <algorithm>

#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "report/report.h"

namespace nvfp4::report {
namespace {

using RunJson = nlohmann::json;

RunJson report_in(const std::string& file) {
  RunJson json = checkpoint::parse_json<RunJson>(checkpoint::read_model_text(file), file);
  require<FormatError>(json.is_object() && json.contains("tensors") && json["tensors"].is_array(),
                       "{}: no report of nvfp4 quantize, it has no list \"tensors\"", file);
  return json;
}

}  // namespace

BudgetCurve budget_curve(const std::filesystem::path& run) {
  const std::string file = run.string();
  const RunJson json = report_in(file);
  BudgetCurve curve;
  const auto points = json.find("curve");
  if (points == json.end()) return curve;
  require<FormatError>(points->is_array(), "{}: \"curve\" must be a list", file);
  for (const RunJson& point : *points) {
    const auto number = [&](const char* key) {
      const auto it = point.is_object() ? point.find(key) : point.end();
      require<FormatError>(it != point.end() && it->is_number() && it->get<double>() >= 0,
                           "{}: a point of \"curve\" without a number {} that is not negative",
                           file, key);
      return it->get<double>();
    };
    if (curve.points.empty()) curve.of_bits = !point.is_object() || !point.contains("w4a16");
    curve.points.push_back({number(curve.of_bits ? "bits" : "w4a16"), number("error")});
    require<FormatError>(std::ranges::is_sorted(curve.points, {}, &BudgetPoint::budget),
                         "{}: \"curve\" is not by budget", file);
  }
  return curve;
}

std::vector<MethodShares> method_shares(const std::filesystem::path& run) {
  const std::string file = run.string();
  const RunJson json = report_in(file);
  std::vector<MethodShares> weights;
  for (const RunJson& tensor : json["tensors"]) {
    if (!tensor.is_object() || !tensor.contains("rows")) continue;
    const auto number = [&](const char* group, const char* key) {
      const auto member = [](const RunJson& of, const char* name) -> const RunJson& {
        static const RunJson none;
        const auto it = of.is_object() ? of.find(name) : of.end();
        return it == of.end() ? none : *it;
      };
      const RunJson& value = member(member(tensor, group), key);
      require<FormatError>(value.is_number() && value.get<double>() >= 0,
                           "{}: a weight without a number {}.{} that is not negative", file, group,
                           key);
      return value.get<double>();
    };
    MethodShares& w = weights.emplace_back();
    require<FormatError>(tensor.contains("name") && tensor["name"].is_string(),
                         "{}: a weight without a name", file);
    w.name = tensor["name"].get<std::string>();
    constexpr const char* kRows[] = {"mse", "weighted", "gptq", "descent"};
    for (std::size_t c = 0; c < w.rows.size(); ++c)
      w.rows[c] = static_cast<std::int64_t>(number("rows", kRows[c]));
    w.output = {number("output_error", "mse"), number("output_error", "kept")};
  }
  return weights;
}

}  // namespace nvfp4::report
