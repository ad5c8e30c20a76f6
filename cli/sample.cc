#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "commands.h"
#include "nvfp4/checkpoint.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct Arguments {
  SampleOptions options;
  bool quiet = false;
};

constexpr const char* kFooter = R"(
Examples:
  nvfp4 sample tiny
  nvfp4 sample llama-8b --scale 1 --layers 32
  nvfp4 sample moe --arch deepseek-v3 --scale 0.125 --layers 3 --shards 4
)";

void run(Arguments& arguments) {
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
  auto arguments = std::make_shared<Arguments>();
  SampleOptions& o = arguments->options;
  CLI::App* command =
      app.add_subcommand("sample", "Make a synthetic BF16 checkpoint with real names and shapes");
  command->add_option("OUTPUT", o.output, "folder to write; new or empty")->required();
  command->add_option("--arch", o.arch, "llama (the default: Llama-3.1-8B) or deepseek-v3")
      ->option_text("NAME")
      ->check(CLI::IsMember({"llama", "deepseek-v3"}));
  command->add_option("--layers", o.layers, "decoder layers, 1 to 1000; 2 if not given")
      ->option_text("N")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--scale", o.scale,
                   "of every width of the real model, 1/64 to 4; 0.125 if not given, 1 is real")
      ->option_text("S")
      ->check(CLI::Range(1.0 / 64, 4.0));
  command->add_option("--seed", o.seed, "of the weights; 0 if not given")
      ->option_text("N")
      ->check(CLI::Validator(
          [](const std::string& seed) {
            return seed.starts_with('-') ? "must not be negative" : std::string();
          },
          ""));
  command->add_option("--shards", o.shards, "files to spread over; one for each 4 GB if not given")
      ->option_text("N")
      ->check(CLI::Range(1, 99999));
  add_threads(*command);
  command->add_flag("--overwrite", o.overwrite, "replace the checkpoint that OUTPUT holds");
  command->add_flag("-q,--quiet", arguments->quiet, "no progress, no summary");
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
