#include "checkpoint/run/transform.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "checkpoint/choose/choose.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/model_card.h"
#include "checkpoint/output/output_file.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/source/adapter.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/write/pipeline.h"
#include "core/require.h"
#include "nvfp4/runtime.h"
#include "platform/memory.h"

namespace nvfp4::checkpoint {
namespace {

QuantizeReport report_of(const Plan& plan) {
  QuantizeReport report;
  for (const PlannedTensor& t : plan.tensors) {
    report.bytes_before += t.bytes_before;
    report.bytes_after += t.bytes_after;
  }
  report.warnings = plan.warnings;
  report.rules = plan.rules;
  report.shards = static_cast<int>(plan.shards.size());
  return report;
}

/// What is known before a byte is written. Added late, as it takes 400 bytes for each tensor.
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

void add_outcomes(std::vector<Outcome> outcomes, QuantizeReport& report) {
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    report.tensors[t].squared_error = outcomes[t].error.squared_error;
    report.tensors[t].squared_norm = outcomes[t].error.squared_norm;
    report.tensors[t].clamped_blocks = outcomes[t].clamped_blocks;
    for (const ChosenRows& run : outcomes[t].chosen_rows)
      report.tensors[t].chosen.at(run.candidate) += run.rows;
    report.tensors[t].chosen_rows = std::move(outcomes[t].chosen_rows);
    report.tensors[t].output = outcomes[t].output;
    std::ranges::sort(outcomes[t].clamped);
    report.tensors[t].clamped = std::move(outcomes[t].clamped);
  }
}

/// What writing says of the tensors.
void add_written(Written written, QuantizeReport& report) {
  if (!written.warning.empty()) report.warnings.push_back(std::move(written.warning));
  add_outcomes(std::move(written.outcomes), report);
}

/// Weights that were NVFP4 before, and are not what they were.
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

/// What planning took and gave back would count beside what writing takes.
void release_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

/// After the last byte: what says how to make them takes as much memory as the report.
void release_work(Plan& plan) {
  plan.units = std::vector<Unit>();
  plan.groups = std::vector<Group>();
  release_free_memory();
}

void write_file(const ModelFolder& model, Plan& plan, const TransformOptions& options,
                DeviceProbe& device, QuantizeReport& report) {
  require<UnsupportedError>(options.ranks == 1,
                            "ranks = {}: {} is one file, which one process writes", options.ranks,
                            plan.format->name);
  device.check();
  check_output_file(options.output, plan.format->extension, options);
  const std::unique_ptr<const Container> container = plan.format->container(model, plan);
  report.warnings.insert(report.warnings.end(), container->warnings().begin(),
                         container->warnings().end());
  if (options.dry_run) return add_tensors(plan, report);
  const FolderOf folder(options.output);
  Written written = write_shards(plan, options, container.get(), options.output,
                                 std::vector<bool>(plan.shards.size()),
                                 [](std::size_t, const std::vector<Outcome>&) {});
  release_work(plan);
  add_tensors(plan, report);
  add_written(std::move(written), report);
  for (TensorReport& t : report.tensors) t.measured = true;
}

void write_model(const ModelFolder& model, Plan& plan, const TransformOptions& options,
                 DeviceProbe& device, QuantizeReport& report) {
  if (plan.format != nullptr && plan.format->container != nullptr)
    return write_file(model, plan, options, device, report);
  OutputFolder output(model, plan, options);
  if (options.dry_run) {
    device.check();
    add_tensors(plan, report);
    return output.check();
  }
  // Nothing old is removed for a device that cannot be used.
  if (options.overwrite)
    device.check();
  else
    device.check_what_is_known();
  output.open();
  report.shards_reused = output.reused();
  const auto& early = output.warnings();
  report.warnings.insert(report.warnings.end(), early.begin(), early.end());
  if (output.complete()) {
    report.warnings.emplace_back("the output is complete already, nothing was done");
    return add_tensors(plan, report);
  }
  Written written = write_shards(plan, options, nullptr, output.path(), output.done(),
                                 [&](std::size_t shard, const std::vector<Outcome>& all) {
                                   device.check();  // so that a run without one leaves nothing
                                   output.before_commit(shard, all);
                                 });
  release_work(plan);
  add_tensors(plan, report);
  report.complete = output.is_last();
  bool whole = true;
  for (std::size_t s = 0; s < plan.shards.size(); ++s) {
    const PlannedShard& shard = plan.shards[s];
    const bool known = !output.done()[s] || output.journal().recall(shard, written.outcomes);
    whole &= known;
    if (!known && (report.complete || !output.is_of_another_rank(s)))
      report.warnings.push_back(shard.file + ": finished earlier, its weight error is not known");
    for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t)
      report.tensors[t].measured = known;
  }
  device.check();
  add_written(std::move(written), report);
  if (!report.complete) return;
  const std::size_t warned = output.warnings().size();
  output.finish(model_card(model, plan, options, report), whole);
  report.warnings.insert(report.warnings.end(),
                         output.warnings().begin() + static_cast<std::ptrdiff_t>(warned),
                         output.warnings().end());
  report.card = output.card_name();
  report.carried_files = static_cast<std::int64_t>(model.others.size());
  report.carried_bytes = output.carried_bytes();
}

void check_method(const TransformOptions& options) {
  require<ValueError>(options.ranks >= 1, "ranks = {}, must be 1 or more", options.ranks);
  require<ValueError>(options.rank >= 0 && options.rank < options.ranks,
                      "rank = {}, must be from 0 to ranks - 1 = {}", options.rank,
                      options.ranks - 1);
  require<ValueError>(
      options.ranks == 1 || !options.overwrite,
      "ranks = {} and overwrite are both set: ranks cannot tell the old output from "
      "what the others write; remove it before",
      options.ranks);
  require<ValueError>(!options.bits || !options.size, "bits and size are both set, must be one");
  require<ValueError>(!(options.bits || options.size) || options.layers == nullptr,
                      "bits or size is set and a recipe is given, which chooses the layers too");
  require<ValueError>(!options.bits || (*options.bits >= 4.5 && *options.bits <= 16),
                      "bits = {}, must be from 4.5 to 16", options.bits.value_or(0));
  require<ValueError>(options.sweeps >= 0, "sweeps = {}, must be 0 or more", options.sweeps);
}

/// What verify calls broken in a source must not come out as if it were whole. The warning, if it
/// is taken all the same.
std::string take_faults(const ModelFolder& model, const TransformOptions& options) {
  std::vector<Finding> faults = value_faults(model.tensors, {});
  if (options.task == TransformOptions::Task::decode)  // which writes no input scale
    std::erase_if(faults, [](const Finding& f) { return f.code == "input-scale-invalid"; });
  if (faults.empty()) return {};
  const std::string more =
      faults.size() == 1 ? "" : fmt::format(" (and {} more weights)", faults.size() - 1);
  require<FormatError>(
      options.force,
      "{}: {}{}; nvfp4 verify lists all, nvfp4 repair corrects NVFP4, --force takes the values as "
      "they "
      "are{}",
      faults[0].code, faults[0].text, more,
      options.task == TransformOptions::Task::quantize ? ", what is not finite with --ignore" : "");
  return fmt::format("--force: faulty weights are used as they are: {}: {}{}", faults[0].code,
                     faults[0].text, more);
}

}  // namespace

QuantizeReport transform_model(const ModelFolder& model, const TransformOptions& options,
                               RunContext& context) try {
  const auto start = std::chrono::steady_clock::now();
  Plan plan = make_plan(model, options);
  release_free_memory();
  QuantizeReport report = report_of(plan);
  report.backend = context.backend.name;
  report.method = plan.method->name;
  report.scheme = options.scheme;
  if (options.layers != nullptr) report.recipe = options.layers->title();
  report.threads = threads();
  report.device = options.device;
  report.dry_run = options.dry_run;
  report.rank = options.rank;
  report.ranks = options.ranks;
  write_model(model, plan, options, context.device, report);
  if (options.task == TransformOptions::Task::quantize) warn_of_rounded(report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.peak_memory_bytes = platform::peak_memory();
  return report;
} catch (const std::filesystem::filesystem_error& e) {
  throw_io_error(e);
}

QuantizeReport transform_checkpoint(const TransformOptions& options) {
  check_method(options);
  RunContext context(options);
  if (options.task != TransformOptions::Task::decode) checkpoint_format(options.format);
  ModelFolder model = open_model_folder(options.input);
  if (options.supply) {
    model.identity = options.supply->identity();
    for (TensorFile& file : model.files) file.supply_later();
  }
  add_adapters(model, options.merge);
  const std::string warning = take_faults(model, options);
  TransformOptions chosen = options;
  std::vector<BudgetPoint> curve;
  if (options.bits || options.size) chosen.layers = choose_recipe(model, options, curve);
  QuantizeReport report = transform_model(model, chosen, context);
  report.curve = std::move(curve);
  if (!warning.empty()) report.warnings.insert(report.warnings.begin(), warning);
  return report;
}

}  // namespace nvfp4::checkpoint
