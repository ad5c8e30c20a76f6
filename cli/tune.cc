#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "core/printable.h"
#include "nvfp4/error.h"
#include "nvfp4/gemm.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct TuneArguments {
  std::string shape, device = "cuda:0", form = "dense", epilogue = "none", x = "bfloat16",
                     out = "bfloat16";
  std::vector<std::int64_t> rows = {1, 16, 64, 256};
  GemmDescription description;
  int shown = 5;
};

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

std::string shape_fault(const std::string& text) {
  GemmDescription d;
  return take_shape(text, d)
             ? ""
             : fmt::format("'{}' must be NxK, such as 4096x7168, K a multiple of 16", text);
}

void print_rows(std::int64_t m, const GemmTuning& tuning, int shown) {
  const Style style(stdout);
  const auto chosen = std::ranges::find(tuning.kernels, true, &TimedKernel::chosen);
  Table table("rrl");
  table.add({style.dim("us"), style.dim("of chosen"), style.dim("kernel")});
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
  GemmDescription d = arguments.description;
  take_shape(arguments.shape, d);
  d.form = kForms.at(arguments.form);
  d.epilogue = kEpilogues.at(arguments.epilogue);
  d.x = kDTypes.at(arguments.x);
  d.out = kDTypes.at(arguments.out);
  const Device device = device_from_name(arguments.device);
  std::string file, note;
  for (const std::int64_t m : arguments.rows) {
    d.m = m;
    const GemmTuning tuning = tune_gemm(d, device);
    print_rows(m, tuning, arguments.shown);
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
  GemmDescription& d = arguments->description;
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  CommandLine line(app, "tune");
  line.option("--shape", arguments->shape)->check(CLI::Validator(shape_fault, ""));
  line.number("--rows", arguments->rows, std::int64_t{1}, (std::int64_t{1} << 31) - 256)
      ->delimiter(',');
  CommandLine::check(line.option("--device", arguments->device), device_from_name);
  line.option("--form", arguments->form);
  line.number("--groups", d.groups, std::int64_t{1}, kMost);
  line.number("--top-k", d.top_k, std::int64_t{1}, kMost);
  line.flag("--shared-x", d.shared_x);
  line.option("--epilogue", arguments->epilogue);
  line.option("--x", arguments->x);
  line.option("--out", arguments->out);
  line.flag("--batch-invariant", d.batch_invariant);
  line.number("--workspace", d.max_workspace_bytes, std::int64_t{0},
              std::numeric_limits<std::int64_t>::max());
  line.number("--show", arguments->shown, 1, 1000);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
