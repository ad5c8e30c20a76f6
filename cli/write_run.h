#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "platform/files.h"
#include "report/report.h"
#include "terminal.h"

/// The common work of quantize, convert and repair around the function of the library.
namespace nvfp4::cli {

/// The file of --report or --html. A regular file is replaced atomically; a pipe or a device is
/// written directly.
class ReportFile {
 public:
  /// Checks the path before the run rather than after an hour. `option` is the name for messages.
  /// Throws CLI::ValidationError for a folder, IoError if the folder of the file does not exist or
  /// nothing reads the pipe.
  ReportFile(std::string option, const std::filesystem::path& path);
  /// Returns the file that is written, with links resolved, or "" for a descriptor of this process.
  std::filesystem::path file() const {
    return descriptor_ < 0 || file_.get() >= 0 ? path_ : std::filesystem::path();
  }
  /// Writes the file. Throws IoError.
  void write(std::string_view text) const;

 private:
  void open_pipe(bool pipe);

  std::string option_;
  std::filesystem::path path_;  ///< path with links resolved
  int descriptor_ = -1;         ///< descriptor of "/dev/stdout" and the like, or of `file_`
  platform::Descriptor file_;   ///< a pipe or a device
};

/// Stores the words of the command line, the program's name first. on_interrupt() prints them.
void remember_command_line(std::vector<std::string> words);

/// Handles SIGINT, SIGTERM and SIGHUP from now on. The first signal writes the command that
/// continues the run to stderr, and ends the process by the default action. A second signal ends it
/// at once, even if that text cannot be written. `resumes` is false for an output of one file,
/// which cannot be continued.
void on_interrupt(bool resumes);

/// Facts for the summary that are not in the report.
struct SummaryFacts {
  std::filesystem::path input, output;
  std::string method;  ///< method and scheme, or "" if nothing is quantized
  std::string format;  ///< format of the output
};
/// Prints a summary of the run for people.
void print_summary(const QuantizeReport& report, const SummaryFacts& about);
/// Prints the report's warnings to stderr, one line for those that differ in names and numbers.
void print_warnings(const QuantizeReport& report);

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
