#include "checkpoint/io/json_text.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4 {

std::string to_json(const QuantizeReport& report) {
  using Json = nlohmann::ordered_json;
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
    if ((t.action == "quantized" || t.action == "converted") && !report.dry_run) {
      all_measured &= t.measured;
      if (t.chosen != decltype(t.chosen){}) {
        tensor["rows"] = {{"mse", t.chosen[0]},
                          {"weighted", t.chosen[1]},
                          {"gptq", t.chosen[2]},
                          {"descent", t.chosen[3]}};
        tensor["output_error"] = {{"mse", t.output.mse}, {"kept", t.output.kept}};
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
  const Json json = {{"bytes_before", report.bytes_before},
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
                     {"tensors", tensors}};
  return checkpoint::dump_pretty(json);
}

}  // namespace nvfp4
