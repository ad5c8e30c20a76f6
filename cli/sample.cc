#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct SampleArguments {
  SampleOptions options;
  bool quiet = false;
};

void run(SampleArguments& arguments) {
  SampleOptions& options = arguments.options;
  if (std::isnan(options.scale))  // which no range refuses
    throw CLI::ValidationError("--scale", "nan, must be 1/64 to 4");
  const auto start = std::chrono::steady_clock::now();
  const SampleReport report = [&] {
    ProgressBar progress("sample", arguments.quiet);
    options.progress = progress.callback();
    return sample_checkpoint(options);
  }();
  if (arguments.quiet) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const Style style(stdout);
  print(fmt::format("{}  {}, {} parameters in {} tensors, {} in {} shard{}, made in {}\n",
                    style.bold(clean(options.output.string())), options.arch,
                    human_count(static_cast<double>(report.parameters)), report.tensors,
                    human_bytes(report.bytes), report.shards, report.shards == 1 ? "" : "s",
                    human_duration(seconds.count())));
}

}  // namespace

void add_sample(CLI::App& app) {
  auto arguments = std::make_shared<SampleArguments>();
  SampleOptions& o = arguments->options;
  CommandLine line(app, "sample");
  line.option("OUTPUT", o.output);
  line.option("--arch", o.arch);
  line.option("--layers", o.layers)->check(CLI::Range(1, 1000));
  line.option("--scale", o.scale)->check(CLI::Range(1.0 / 64, 4.0));
  line.option("--seed", o.seed)
      ->check(CLI::Validator(
          [](const std::string& seed) {
            return seed.starts_with('-') ? "must not be negative" : std::string();
          },
          ""));
  line.option("--shards", o.shards)->check(CLI::Range(1, 99999));
  line.threads();
  line.flag("--overwrite", o.overwrite);
  line.flag("--quiet", arguments->quiet);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
