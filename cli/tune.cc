#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "nvfp4/gemm.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

const std::map<std::string, GemmForm> kForms = {{"dense", GemmForm::dense},
                                                {"grouped", GemmForm::grouped},
                                                {"routed", GemmForm::routed},
                                                {"every_group", GemmForm::every_group}};
const std::map<std::string, Epilogue> kEpilogues = {{"none", Epilogue::none},
                                                    {"swiglu", Epilogue::swiglu},
                                                    {"swiglu_quantize", Epilogue::swiglu_quantize}};
const std::map<std::string, DType> kDTypes = {
    {"bfloat16", DType::bf16}, {"float16", DType::f16}, {"float32", DType::f32}};

/// Returns true if all of `text` is a number of at least 1.
bool take_number(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number >= 1;
}

bool take_shape(std::string_view text, GemmDescription& d) {
  const std::size_t x = text.find('x');
  return x != text.npos && take_number(text.substr(0, x), d.n) &&
         take_number(text.substr(x + 1), d.k) && d.k % kBlock == 0;
}

void check(TuneArguments& arguments) {
  if (!take_shape(arguments.shape, arguments))
    throw UsageError(
        fmt::format("--shape: '{}', must be NxK, such as 4096x7168, K a multiple of 16",
                    arguments.shape),
        ErrorCode::value);
}

void print_rows(std::int64_t m, const GemmTuning& tuning, int shown) {
  const Style style(stdout);
  const auto chosen = std::ranges::find(tuning.kernels, true, &TimedKernel::chosen);
  Table table("rrl");
  table.title({"us", "of chosen", "kernel"});
  for (std::size_t i = 0; i < tuning.kernels.size(); ++i) {
    const TimedKernel& k = tuning.kernels[i];
    if (i >= static_cast<std::size_t>(shown) && !k.chosen) continue;
    const std::string time = fmt::format("{:.2f}", k.microseconds);
    table.add({i == 0 ? style.bold(time) : time,
               chosen == tuning.kernels.end()
                   ? "-"
                   : fmt::format("{:.3f}", k.microseconds / chosen->microseconds),
               fmt::format("{}{}", k.kernel, k.chosen ? "  (chosen)" : "")});
  }
  print(fmt::format("{}\n{}\n",
                    style.bold(fmt::format("{} row{}, {} kernels measured", m, m == 1 ? "" : "s",
                                           tuning.kernels.size())),
                    table.text()));
}

void run(const TuneArguments& arguments) {
  const TuneWords& words = arguments;
  GemmDescription d = arguments;
  d.form = kForms.at(words.form);
  d.epilogue = kEpilogues.at(words.epilogue);
  d.x = kDTypes.at(words.x);
  d.out = kDTypes.at(words.out);
  std::string file, note;
  for (const std::int64_t m : words.rows) {
    d.m = m;
    const GemmTuning tuning = tune_gemm(d, words.device);
    print_rows(m, tuning, words.shown);
    file = tuning.file;
    if (!tuning.note.empty() && tuning.note != note)
      say(fmt::format("nvfp4: warning: {}\n", clean(tuning.note)));
    note = tuning.note;
  }
  if (!file.empty()) print(fmt::format("kept in {}\n", clean(file)));
}

}  // namespace

void add_tune(CLI::App& app) {
  auto arguments = std::make_shared<TuneArguments>();
  CommandLine line(app, "tune", *arguments);
  line.callback([arguments] { run(*arguments); }, [arguments] { check(*arguments); });
}

}  // namespace nvfp4::cli
