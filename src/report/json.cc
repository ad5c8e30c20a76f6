// Converts the reports to JSON, and reads parts of them. docs/schema describes the content.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/base/json_members.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/verify.h"
#include "report/report.h"

namespace nvfp4 {
namespace {

using checkpoint::dump_pretty;

/// The names of the entries of TensorReport::chosen.
constexpr std::array kGptqNames = {"mse", "weighted", "gptq", "descent"};

Json counts(const VerifyReport& report) {
  return {{"errors", report.count(Severity::error)},
          {"warnings", report.count(Severity::warning)},
          {"notes", report.count(Severity::note)}};
}

Json json_of(const QuantizeReport& report) {
  Json tensors = Json::array();
  double squared_error = 0, squared_norm = 0;
  bool all_measured = !report.dry_run;
  for (const TensorReport& t : report.tensors) {
    Json tensor = {{"name", t.name},
                   {"action", t.action},
                   {"kind", t.kind},
                   {"shape", t.shape},
                   {"bytes_before", t.bytes_before},
                   {"bytes_after", t.bytes_after}};
    if (!t.reason.empty()) tensor["reason"] = t.reason;
    if (t.action == "converted" && t.measured) {
      tensor["clamped_blocks"] = t.clamped_blocks;
      if (t.clamped_blocks > 0) tensor["clamped"] = t.clamped;
    }
    if ((t.action == "quantized" || t.action == "converted" || t.action == "fp8" ||
         t.action == "q8_0") &&
        !report.dry_run) {
      all_measured &= t.measured;
      if (!t.chosen_rows.empty()) {
        for (std::size_t c = 0; c < kGptqNames.size(); ++c)
          tensor["rows"][kGptqNames[c]] = t.chosen[c];
        for (const ChosenRows& run : t.chosen_rows)
          tensor["rows_in_order"].push_back({kGptqNames.at(run.candidate), run.rows});
        tensor["output_error"] = {{"mse", t.output.mse}, {"kept", t.output.kept}};
        if (!t.factors.empty()) tensor["factors"] = t.factors;
      }
      tensor["squared_error"] = t.measured ? Json(t.squared_error) : Json();
      tensor["squared_norm"] = t.measured ? Json(t.squared_norm) : Json();
      squared_error += t.squared_error;
      squared_norm += t.squared_norm;
    } else if (t.action == "moved" && t.squared_norm > 0) {  // its scales were rounded
      tensor["squared_error"] = t.squared_error;
      tensor["squared_norm"] = t.squared_norm;
    }
    tensors.push_back(std::move(tensor));
  }
  Json curve = Json::array();
  for (const BudgetPoint& p : report.curve)
    curve.push_back({{report.curve_over, p.budget}, {"error", p.error}});
  Json rules = Json::array();
  for (const RecipeRuleReport& r : report.rules)
    rules.push_back({{"line", r.line},
                     {"rule", r.text},
                     {"action", r.action},
                     {"caught", r.caught},
                     {"decided", r.decided},
                     {"usual", r.usual},
                     {"bytes", r.bytes},
                     {"first", r.first}});
  return {{"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"squared_error", all_measured ? Json(squared_error) : Json()},
          {"squared_norm", all_measured ? Json(squared_norm) : Json()},
          {"carried_files", report.carried_files},
          {"carried_bytes", report.carried_bytes},
          {"card", report.card},
          {"seconds", report.seconds},
          {"peak_memory_bytes", report.peak_memory_bytes},
          {"device", device_name(report.device)},
          {"backend", report.backend},
          {"method", report.method},
          {"threads", report.threads},
          {"shards", report.shards},
          {"shards_reused", report.shards_reused},
          {"rank", report.rank},
          {"ranks", report.ranks},
          {"complete", report.complete},
          {"dry_run", report.dry_run},
          {"warnings", report.warnings},
          {"scheme", scheme_name(report.scheme)},
          {"recipe", report.recipe},
          {"rules", std::move(rules)},
          {"curve", std::move(curve)},
          {"error_of", report.error_of},
          {"tensors", tensors}};
}

}  // namespace

std::string to_json(const QuantizeReport& report) { return dump_pretty(json_of(report)); }

std::string to_json(const InspectReport& report) {
  Json tensors = Json::array();
  for (const InspectedTensor& t : report.tensors) {
    Json j{{"name", t.name},   {"dtype", t.dtype}, {"scheme", t.scheme},
           {"shape", t.shape}, {"bytes", t.bytes}, {"file", t.file}};
    if (t.scheme == "nvfp4") {
      j["global_scale"] = t.global_scale;
      j["input_scale"] = t.input_scale ? Json(*t.input_scale) : nullptr;
      j["scale_min"] = t.scale_min;
      j["scale_max"] = t.scale_max;
      if (!t.codes.empty()) j["codes"] = t.codes;
    }
    tensors.push_back(std::move(j));
  }
  Json out{{"path", report.path},
           {"format", report.format},
           {"scheme", report.scheme},
           {"model_type", report.model_type},
           {"complete", report.complete},
           {"bytes", report.bytes},
           {"parameters", report.parameters}};
  if (!report.scales.empty()) out["scales"] = report.scales;
  out["tensors"] = std::move(tensors);
  return dump_pretty(out);
}

std::string to_json(const CompareReport& report) {
  Json tensors = Json::array();
  for (const TensorDifference& t : report.tensors)
    tensors.push_back({{"name", t.name},
                       {"shape", t.shape},
                       {"form_a", t.form_a},
                       {"form_b", t.form_b},
                       {"relative_error", t.relative_error},
                       {"sqnr_db", t.sqnr_db},
                       {"max_error", t.max_error},
                       {"squared_error", t.squared_error},
                       {"squared_norm", t.squared_norm}});
  return dump_pretty(
      {{"relative_error", report.relative_error},
       {"sqnr_db", report.sqnr_db},
       {"max_error", report.max_error},
       {"median_relative_error", report.median_relative_error},
       {"worst_relative_error", report.tensors.empty() ? 0 : report.tensors.front().relative_error},
       {"worst", report.tensors.empty() ? "" : report.tensors.front().name},
       {"complete_a", report.complete_a},
       {"complete_b", report.complete_b},
       {"identical", report.identical},
       {"different", report.tensors.size()},
       {"only_in_a", report.only_in_a},
       {"only_in_b", report.only_in_b},
       {"shape_mismatch", report.shape_mismatch},
       {"tensors", std::move(tensors)}});
}

std::string to_json(const VerifyReport& report) {
  Json findings = Json::array();
  for (const Finding& f : report.findings)
    findings.push_back({{"code", f.code},
                        {"severity", severity_name(f.severity)},
                        {"tensor", f.tensor},
                        {"text", f.text},
                        {"effect", f.effect},
                        {"fix", f.fix}});
  Json loaders = Json::object();
  for (const LoaderVerdict& v : report.loaders)
    loaders[v.loader] = {{"verdict", verdict_name(v.verdict)},
                         {"code", v.code},
                         {"text", v.text},
                         {"version", v.version},
                         {"findings", v.findings},
                         {"tensors", v.tensors}};
  return dump_pretty({{"path", report.path},
                      {"format", report.format},
                      {"scheme", report.scheme},
                      {"loader", report.loader},
                      {"tensors", report.tensors},
                      {"quantized", report.quantized},
                      {"bytes", report.bytes},
                      {"broken", report.broken()},
                      {"errors", report.count(Severity::error)},
                      {"warnings", report.count(Severity::warning)},
                      {"notes", report.count(Severity::note)},
                      {"loaders", std::move(loaders)},
                      {"tensor_parallel", report.tensor_parallel},
                      {"findings", std::move(findings)}});
}

std::string to_json(const RepairReport& report) {
  Json changes = Json::array();
  for (const RepairChange& c : report.changes) {
    Json change = {{"code", c.code}, {"tensor", c.tensor}, {"text", c.text}};
    if (c.loss) change["loss"] = *c.loss;
    changes.push_back(std::move(change));
  }
  return dump_pretty({{"before", counts(report.before)},
                      {"after", counts(report.after)},
                      {"changes", std::move(changes)},
                      {"written", json_of(report.written)}});
}

}  // namespace nvfp4

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
  if (!json.contains("curve")) return curve;
  require<FormatError>(json["curve"].is_array(), "{}: \"curve\" must be a list", file);
  for (const RunJson& point : json["curve"]) {
    const auto number = [&](const char* key) {
      const RunJson& value = member_of(point, key);
      require<FormatError>(value.is_number() && value.get<double>() >= 0,
                           "{}: a point of \"curve\" without a number {} that is not negative",
                           file, key);
      return value.get<double>();
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
      const RunJson& value = member_of(member_of(tensor, group), key);
      require<FormatError>(value.is_number() && value.get<double>() >= 0,
                           "{}: a weight without a number {}.{} that is not negative", file, group,
                           key);
      return value.get<double>();
    };
    MethodShares& w = weights.emplace_back();
    require<FormatError>(tensor.contains("name") && tensor["name"].is_string(),
                         "{}: a weight without a name", file);
    w.name = tensor["name"].get<std::string>();
    for (std::size_t c = 0; c < w.rows.size(); ++c)
      w.rows[c] = static_cast<std::int64_t>(number("rows", kGptqNames[c]));
    w.output = {number("output_error", "mse"), number("output_error", "kept")};
  }
  return weights;
}

}  // namespace nvfp4::report
