
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "checkpoint/write/write_plan.h"
#include "nvfp4/runtime.h"
#include "platform/memory.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns memory that planning freed to the system. Otherwise it would count in addition to that
/// of writing.
void release_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

QuantizeReport facts_of(const Plan& plan, const TransformOptions& options) {
  QuantizeReport report;
  for (const PlannedTensor& t : plan.tensors) {
    report.bytes_before += t.bytes_before;
    report.bytes_after += t.bytes_after;
  }
  report.warnings = plan.warnings;
  report.rules = plan.rules;
  report.shards = static_cast<int>(plan.shards.size());
  report.method = plan.method->name;
  report.scheme = plan.scheme;
  if (options.layers != nullptr) report.recipe = options.layers->title();
  report.threads = threads();
  report.device = options.device;
  report.dry_run = options.dry_run;
  report.rank = options.rank;
  report.ranks = options.ranks;
  return report;
}

/// Adds the facts about tensors that are known before writing. It is called late, since they take
/// 400 bytes for each tensor.
void add_tensors(const Plan& plan, QuantizeReport& report) {
  report.tensors.reserve(plan.tensors.size());
  for (const PlannedTensor& t : plan.tensors) {
    TensorReport& r = report.tensors.emplace_back();
    r.name = t.name;
    r.action = t.action;
    r.kind = t.kind;
    r.reason = t.reason;
    r.shape = t.stored ? t.stored.info->shape : t.source->shape;
    r.bytes_before = t.bytes_before;
    r.bytes_after = t.bytes_after;
  }
}

std::string_view factors_by(GramFactor::By by) {
  if (by == GramFactor::By::nobody) return "";
  return by == GramFactor::By::library ? "cuSOLVER" : "Eigen";
}

void add_outcomes(std::vector<Outcome> outcomes, QuantizeReport& report) {
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    report.tensors[t].squared_error = outcomes[t].error.squared_error;
    report.tensors[t].squared_norm = outcomes[t].error.squared_norm;
    report.tensors[t].clamped_blocks = outcomes[t].clamped_blocks;
    for (const ChosenRows& run : outcomes[t].chosen_rows)
      report.tensors[t].chosen.at(run.candidate) += run.rows;
    report.tensors[t].chosen_rows = std::move(outcomes[t].chosen_rows);
    report.tensors[t].output = outcomes[t].output;
    report.tensors[t].factors = factors_by(outcomes[t].factored);
    std::ranges::sort(outcomes[t].clamped);
    report.tensors[t].clamped = std::move(outcomes[t].clamped);
  }
}

/// Marks the shards whose errors are known. Errors of shards that other runs wrote come from their
/// records. Returns whether all errors are known.
bool add_known(const Plan& plan, Output& output, std::vector<Outcome>& outcomes,
               QuantizeReport& report) {
  bool whole = true;
  for (std::size_t s = 0; s < plan.shards.size(); ++s) {
    const PlannedShard& shard = plan.shards[s];
    const bool known = !output.done()[s] || output.recall(s, outcomes);
    whole &= known;
    if (!known && (report.complete || !output.is_of_another_rank(s)))
      report.warnings.push_back(shard.file + ": finished earlier, its weight error is not known");
    for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t)
      report.tensors[t].measured = known;
  }
  return whole;
}

/// Warns of weights that were NVFP4 before and were rounded.
void warn_of_rounded(QuantizeReport& report) {
  constexpr std::size_t kNamed = 8;
  std::size_t rounded = 0;
  for (const TensorReport& t : report.tensors) {
    if (t.action != "moved" || t.squared_error == 0 || rounded++ >= kNamed) continue;
    report.warnings.push_back(fmt::format(
        "{}: its block scales were rounded, as a weight that loaders fuse with it needs a larger "
        "global scale: relative error {:.2g}",
        t.name, std::sqrt(t.squared_error / t.squared_norm)));
  }
  if (rounded > kNamed)
    report.warnings.push_back(
        fmt::format("the block scales of {} more weights were rounded", rounded - kNamed));
}

/// Tells the error of weights that became Q8_0.
void warn_of_q8_0(QuantizeReport& report) {
  double squared_error = 0, squared_norm = 0;
  bool any = false;
  for (const TensorReport& t : report.tensors) {
    if (t.action != "q8_0") continue;
    any = true;
    squared_error += t.squared_error;
    squared_norm += t.squared_norm;
  }
  if (any)
    report.warnings.push_back(
        fmt::format("relative error of the weights that become Q8_0: {:.2g}",
                    squared_norm == 0 ? 0 : std::sqrt(squared_error / squared_norm)));
}

/// Tells what the lack of a global scale costs: block scales below 2^-6 have fewer digits.
void warn_of_subnormals(const Plan& plan, std::span<const Outcome> outcomes,
                        QuantizeReport& report) {
  double error = 0, with_global = 0, norm = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.error_with_global < 0) continue;
    error += outcome.error.squared_error;
    with_global += double{outcome.error_with_global};
    norm += outcome.error.squared_norm;
  }
  if (norm > 0)
    report.warnings.push_back(
        fmt::format("{} has no global scale, and block scales below 2^-6 are coarse: relative "
                    "error {:.4f}, with a global scale {:.4f}",
                    plan.format->name, std::sqrt(error / norm), std::sqrt(with_global / norm)));
}

struct WrittenReport {
  QuantizeReport report;
  bool whole = true;  ///< every weight error is known
};

/// Returns the report of a run, given the outcomes of its shards. `written` is empty if nothing was
/// to be written. The output tells which shards other runs wrote, and whether this process ends it.
WrittenReport report_of_plan(const Plan& plan, const TransformOptions& options, Output& output,
                             Written written) {
  WrittenReport told;
  QuantizeReport& report = told.report = facts_of(plan, options);
  report.shards_reused = output.reused();
  report.warnings.insert(report.warnings.end(), output.warnings().begin(), output.warnings().end());
  add_tensors(plan, report);
  if (options.dry_run) return told;
  if (output.complete()) {
    report.nothing_done = true;
    report.warnings.emplace_back("the output is complete already, nothing was done");
    return told;
  }
  report.complete = output.is_last();
  told.whole = add_known(plan, output, written.outcomes, report);
  if (!written.warning.empty()) report.warnings.push_back(std::move(written.warning));
  warn_of_subnormals(plan, written.outcomes, report);
  add_outcomes(std::move(written.outcomes), report);
  warn_of_rounded(report);
  warn_of_q8_0(report);
  return told;
}

}  // namespace

QuantizeReport write_plan(Plan& plan, const TransformOptions& options, RunContext& run,
                          Output& output) {
  release_free_memory();
  // No old output is removed if the device cannot be used.
  if (options.dry_run || output.replaces())
    run.device.check();
  else
    run.device.check_what_is_known();
  if (options.dry_run)
    output.check();
  else
    output.open();
  const bool writes = !options.dry_run && !output.complete();
  Written written;
  if (writes) {
    // The device is checked before a shard gets its name: without a device nothing remains.
    written = write_shards(plan, options, output, [&] { run.device.check(); });
    run.device.check();
    // Units and groups take as much memory as the report, and are not needed for it.
    plan.units = std::vector<Unit>();
    plan.groups = std::vector<Group>();
    release_free_memory();
  }
  auto [report, whole] = report_of_plan(plan, options, output, std::move(written));
  report.backend = run.backend.name;
  if (writes && report.complete) output.finish(report, whole);
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - plan.started).count();
  report.peak_memory_bytes = platform::peak_memory();
  return std::move(report);
}

}  // namespace nvfp4::checkpoint
