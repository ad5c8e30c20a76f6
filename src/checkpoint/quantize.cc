#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "backends/backend.h"
#include "checkpoint/output_folder.h"
#include "checkpoint/pipeline.h"
#include "core/require.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

using namespace checkpoint;

std::uint64_t peak_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

QuantizeReport report_of(const Plan& plan) {
  QuantizeReport report;
  for (const PlannedTensor& t : plan.tensors) {
    TensorReport& r = report.tensors.emplace_back();
    r.name = t.info->name;
    r.action = t.selection.quantize ? "quantized" : "kept";
    r.kind = t.selection.kind;
    r.reason = t.selection.reason;
    r.shape = t.info->shape;
    r.bytes_before = t.info->bytes;
    r.bytes_after = t.bytes_after;
    report.bytes_before += r.bytes_before;
    report.bytes_after += r.bytes_after;
  }
  report.warnings = plan.warnings;
  report.shards = static_cast<int>(plan.shards.size());
  return report;
}

void check_options(const QuantizeCheckpointOptions& options) {
  require<ValueError>(!options.output.empty(), "output: empty, must name a folder");
  require<ValueError>(!options.resume || !options.overwrite,
                      "resume and overwrite are both set, must be one of them");
  checkpoint_format(options.format);
  const std::string reason = why_unavailable(options.device);
  require<UnsupportedError>(reason.empty(), "device = {}: {}", device_name(options.device), reason);
  require_apart(options.input, options.output);
}

void write_model(const ModelFolder& model, Plan& plan, const QuantizeCheckpointOptions& options,
                 QuantizeReport& report) {
  OutputFolder output(model, plan, options);
  if (options.dry_run) return output.check();
  output.open();
  report.shards_reused =
      static_cast<int>(std::count(output.done().begin(), output.done().end(), true));
  const auto& early = output.warnings();
  report.warnings.insert(report.warnings.end(), early.begin(), early.end());
  if (output.complete()) {
    report.warnings.push_back("the output is complete already, nothing was done");
    return;
  }
  const PipelineOptions pipeline = {options.scheme,    &checkpoint_format(options.format),
                                    options.quantizer, options.backend,
                                    options.device,    options.progress};
  std::vector<QuantizationError> errors =
      write_shards(model, plan, pipeline, output.path(), output.done(),
                   [&](std::size_t shard, const std::vector<QuantizationError>& all) {
                     output.before_commit(shard, all);
                   });
  for (std::size_t s = 0; s < plan.shards.size(); ++s) {
    const PlannedShard& shard = plan.shards[s];
    const bool known = !output.done()[s] || output.journal().recall(shard, errors);
    if (!known)
      report.warnings.push_back(shard.file + ": finished earlier, its weight error is not known");
    for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t)
      report.tensors[t].measured = known;
  }
  output.finish();
  for (std::size_t t = 0; t < errors.size(); ++t) {
    report.tensors[t].squared_error = errors[t].squared_error;
    report.tensors[t].squared_norm = errors[t].squared_norm;
  }
}

}  // namespace

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) try {
  const auto start = std::chrono::steady_clock::now();
  check_options(options);
  const Backend& backend = find_backend(options.backend);
  const ModelFolder model = open_model_folder(options.input);
  Plan plan = make_plan(model, options);
  QuantizeReport report = report_of(plan);
  report.backend = backend.name;
  report.threads = threads();
  report.device = options.device;
  report.dry_run = options.dry_run;
  write_model(model, plan, options, report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.peak_memory_bytes = peak_memory();
  return report;
} catch (const std::filesystem::filesystem_error& e) {
  throw IoError(e.what());
}

}  // namespace nvfp4
