// Converts the reports to JSON. docs/schema describes the content.
#include <array>

#include "checkpoint/io/json_text.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/verify.h"

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
