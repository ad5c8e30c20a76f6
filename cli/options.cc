#include "commands.h"
#include "nvfp4/runtime.h"

namespace nvfp4::cli {

void add_threads(CLI::App& command) {
  command
      .add_option_function<int>(
          "--threads", [](int threads) { set_threads(threads); },
          "threads to use; all CPUs that this process may use if not given")
      ->option_text("N")
      ->check(CLI::Range(1, 4096));
}

void add_run_flags(CLI::App& command, bool& resume, bool& overwrite, bool& dry_run, bool& quiet) {
  CLI::Option* again =
      command.add_flag("--resume", resume, "go on with an interrupted run, same options");
  command.add_flag("--overwrite", overwrite, "replace what OUTPUT holds")->excludes(again);
  command.add_flag("--dry-run", dry_run, "only say what would be done");
  command.add_flag("-q,--quiet", quiet, "no progress, no summary");
}

void add_drop(CLI::App& command, bool& drop) {
  command.add_flag("--drop", drop,
                   "leave out what the form has no place for (GGUF: multi-token prediction, scales "
                   "of caches), else it is an error");
}

void add_force(CLI::App& command, bool& force) {
  command.add_flag("--force", force,
                   "take weights whose scales are broken (NaN, infinite, far too large), with a "
                   "warning; an error otherwise");
}

void add_report(CLI::App& command, std::string& file) {
  command.add_option("--report", file, "write everything about each tensor as JSON")
      ->option_text("FILE");
}

}  // namespace nvfp4::cli
