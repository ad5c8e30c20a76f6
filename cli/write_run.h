#pragma once

#include <optional>
#include <string_view>

#include "command_line.h"
#include "interrupt.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "report/report.h"
#include "report_file.h"
#include "summary.h"
#include "terminal.h"

/// The common work of quantize, convert and repair around the function of the library.
namespace nvfp4::cli {

/// Calls `work` with a progress bar. After an interruption a message tells how to continue with
/// --resume, unless the output is one file. The device is released at the end, because the process
/// does nothing else.
template <class Options, class Report>
Report run_writing(std::string_view verb, bool one_file, Options& options, bool quiet,
                   Report (*work)(const Options&)) {
  if (!options.dry_run) on_interrupt(/*resumes=*/!one_file);
  ProgressBar progress(verb, quiet);
  options.progress = progress.callback();
  options.release_device = true;
  return work(options);
}

/// Calls `work` in the same way, writes --report and prints warnings to stderr.
template <class Options>
QuantizeReport run_reported(std::string_view verb, bool one_file, Options& options, bool quiet,
                            QuantizeReport (*work)(const Options&)) {
  std::optional<ReportFile> file;
  if (!options.report.empty()) options.report = file.emplace("--report", options.report).file();
  QuantizeReport report = run_writing(verb, one_file, options, quiet, work);
  if (file) file->write(to_json(report) + "\n");
  print_warnings(report);
  return report;
}

}  // namespace nvfp4::cli
