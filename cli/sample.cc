#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct SampleArguments {
  SampleOptions options;
  bool quiet = false;
};

void run(SampleArguments& arguments) {
  SampleOptions& options = arguments.options;
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
  line.number("--layers", o.layers, 1, 1000);
  line.number("--scale", o.scale, 1.0 / 64, 4.0);
  line.number("--seed", o.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  line.number("--shards", o.shards, 1, 99999);
  line.threads();
  line.flag("--overwrite", o.overwrite);
  line.flag("--quiet", arguments->quiet);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
