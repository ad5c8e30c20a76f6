#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

void run(SampleArguments& options) {
  const auto start = std::chrono::steady_clock::now();
  const SampleReport report = [&] {
    ProgressBar progress("sample", options.quiet);
    options.progress = progress.callback();
    return sample_checkpoint(options);
  }();
  if (options.quiet) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const Style style(stdout);
  print(wrapped(stdout,
                fmt::format("{}  {}, {} parameters in {} tensors, {} in {} shard{}, made in {}\n",
                            style.bold(clean(options.output.string())), options.arch,
                            human_count(static_cast<double>(report.parameters)), report.tensors,
                            human_bytes(report.bytes), report.shards, report.shards == 1 ? "" : "s",
                            human_duration(seconds.count()))));
}

}  // namespace

void add_sample(CLI::App& app) {
  auto arguments = std::make_shared<SampleArguments>();
  CommandLine line(app, "sample", *arguments);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
