
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "checkpoint/write/write_plan.h"
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
