#include "checkpoint/run/start.h"

#include <memory>
#include <utility>

#include "checkpoint/base/error_codes.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/source/content.h"
#include "checkpoint/source/model_folder.h"
#include "core/printable.h"
#include "core/require.h"
#include "quantizers/method.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Calls `check`. Its errors are those of the option with this keyword.
template <class Check>
auto of_option(const char* keyword, Check&& check) try {
  return check();
} catch (const ValueError& e) {
  OptionsError error(e.what(), e.code);
  error.option = keyword;
  throw error;
}

/// Checks what the options alone show. `reads`: besides the input and its amaxes.
void check_options(const RunOptions& options, std::vector<UsedPath> reads) try {
  require<ValueError>(!options.input.empty(), "input: empty, must name a model");
  require<ValueError>(!options.output.empty(), "output: empty, must name a folder");
  check_given(options);
  require_no_address(options.output);
  reads.insert(reads.begin(),
               {{"input", options.input}, {"input_amax", options.input_amax.value_or("")}});
  require_apart(std::move(reads), {{"output", options.output}, {"--report", options.report}});
} catch (const fs::filesystem_error& e) {
  throw_io_error(e);
}

std::vector<UsedPath> reads_of(const TransformOptions& options) {
  std::vector<UsedPath> reads = {{"statistics", options.statistics.value_or("")}};
  std::error_code ignored;
  if (options.recipe && fs::is_regular_file(*options.recipe, ignored))  // else a name of ours
    reads.push_back({"recipe", *options.recipe});
  for (const std::string& adapter : options.merge)
    reads.push_back({"merge", parse_adapter(adapter).folder});
  return reads;
}

}  // namespace

void check_given(const RunOptions& options) {
  of_option("overwrite", [&] {
    require<ValueError>(!options.resume || !options.overwrite,
                        "resume and overwrite are both set; hint: leave one of them out");
  });
}

void check_given(const QuantizeCheckpointOptions& options) {
  check_given(static_cast<const RunOptions&>(options));
  require<OptionsError>(options.ranks >= 1 && options.ranks <= kMaxRanks,
                        "ranks = {}, must be from 1 to {}", options.ranks, kMaxRanks);
  require<OptionsError>(options.rank >= 0 && options.rank < options.ranks,
                        "rank = {}, must be from 0 to ranks - 1 = {}", options.rank,
                        options.ranks - 1);
  require<OptionsError>(
      options.ranks == 1 || !options.overwrite,
      "ranks = {} and overwrite are both set: processes cannot tell the old files from "
      "what the others write; hint: remove it before",
      options.ranks);
  of_option("size", [&] {
    require<ValueError>(!options.bits || !options.size,
                        "bits and size are both set; hint: leave one of them out");
  });
  require<OptionsError>(!options.bits || (*options.bits >= 4.5 && *options.bits <= 16),
                        "bits = {}, must be from 4.5 to 16", options.bits.value_or(0));
  if (!options.w4a4) return;
  require<OptionsError>(*options.w4a4 >= 0 && *options.w4a4 <= 1, "w4a4 = {}, must be from 0 to 1",
                        *options.w4a4);
  require<OptionsError>(options.statistics.has_value(),
                        "w4a4 = {}: statistics are not set, which have the sensitivities of the "
                        "layers; hint: nvfp4 calibrate writes them",
                        *options.w4a4);
  require<OptionsError>(options.scheme == Scheme::w4a4,
                        "w4a4 = {} and scheme w4a16 are both set; hint: leave one of them out",
                        *options.w4a4);
}

RunContext start_run(const RunOptions& options, std::vector<UsedPath> also_read) {
  check_options(options, std::move(also_read));
  RunContext run{DeviceProbe(options.device), find_backend(options.backend)};
  run.device.check_what_is_known();
  return run;
}

ChosenMethod chosen_method(const TransformOptions& options, std::string_view otherwise) {
  return of_option("method", [&] {
    ChosenMethod chosen = method_from_text(options.method.empty() ? otherwise : options.method);
    require<ValueError>(
        options.task == TransformOptions::Task::quantize || chosen.method->needs == Needs::nothing,
        "method = {}, must be max, four_over_six or mse", options.method);
    return chosen;
  });
}

RunContext start_run(TransformOptions& options) {
  check_given(options);
  RunContext run = start_run(options, reads_of(options));
  bool weights_only = false;  // the format has no input scales
  options.chosen = chosen_method(options, options.statistics ? "weighted" : "mse");
  if (options.task != TransformOptions::Task::decode) {
    if (options.format.empty()) options.format = default_checkpoint_format(options.output).name;
    const CheckpointFormat& format = checkpoint_format(options.format);
    weights_only = format.names->input.empty();
  }
  std::optional<Recipe> recipe;
  if (options.recipe) recipe = read_recipe(options.recipe->string());
  if (recipe && recipe->scheme) options.scheme = *recipe->scheme;
  if (weights_only) {
    require<OptionsError>(
        !options.w4a4,
        "w4a4 = {}: format {} has no scales of inputs; hint: leave w4a4 out or take "
        "another format",
        options.w4a4.value_or(0), options.format);
    options.drops_inputs =
        options.task == TransformOptions::Task::quantize && options.scheme == Scheme::w4a4;
    options.scheme = Scheme::w4a16;
    options.takes_scheme = false;
  }
  // A recipe that changes nothing leaves no trace: the output has the bytes of a run without it.
  if (!recipe || (recipe->rules.empty() && recipe->kv_cache.empty())) return run;
  const std::string budget = options.bits   ? fmt::format("bits = {}", *options.bits)
                             : options.size ? fmt::format("size = {}", *options.size)
                             : options.w4a4 ? fmt::format("w4a4 = {}", *options.w4a4)
                                            : "";
  require<OptionsError>(budget.empty(),
                        "{} and recipe = {} are both set, and both choose the layers; hint: leave "
                        "one of them out",
                        budget, printable(options.recipe->string()));
  options.layers = std::make_shared<const Recipe>(std::move(*recipe));
  return run;
}

}  // namespace nvfp4::checkpoint
