#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "nvfp4/error.h"
#include "nvfp4/gemm.h"
#include "nvfp4/printable.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

struct Arguments {
  std::string shape, device = "cuda:0";
  std::vector<std::int64_t> rows = {1, 16, 64, 256};
  GemmDescription description;
  int shown = 5;
};

constexpr const char* kFooter = R"(
The fastest kernel of each product is kept in the file that NVFP4_TUNE_CACHE
names, else in nvfp4/gemm.json below XDG_CACHE_HOME or ~/.cache, under the names
of the GPU, the driver and the library. Plans with autotune, and no others, take
it from there. "of chosen" is the time over that of the kernel that a plan
without autotune has. W4A4 is the same product, once x is decoded.

Examples:
  nvfp4 tune --shape 4096x7168
  nvfp4 tune --shape 5120x2880 --rows 1,8,32 --x float16 --device cuda:1
  nvfp4 tune --shape 4096x7168 --form grouped --groups 256 --rows 1024
)";

const std::map<std::string, GemmForm> kForms = {{"dense", GemmForm::dense},
                                                {"grouped", GemmForm::grouped},
                                                {"routed", GemmForm::routed},
                                                {"every_group", GemmForm::every_group}};
const std::map<std::string, Epilogue> kEpilogues = {{"none", Epilogue::none},
                                                    {"swiglu", Epilogue::swiglu},
                                                    {"swiglu_quantize", Epilogue::swiglu_quantize}};
const std::map<std::string, DType> kDTypes = {
    {"bfloat16", DType::bf16}, {"float16", DType::f16}, {"float32", DType::f32}};

/// The whole of `text` is a number of at least 1.
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

std::string device_fault(const std::string& name) try {
  device_from_name(name);  // whether it can be used is not a question of usage
  return {};
} catch (const ValueError& e) {
  return e.what();
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

void run(const Arguments& arguments) {
  GemmDescription d = arguments.description;
  take_shape(arguments.shape, d);
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

template <class T>
void add_choice(CLI::App& command, const char* name, T& value,
                const std::map<std::string, T>& choices, const char* text) {
  command.add_option(name, value, text)
      ->option_text("NAME")
      ->transform(CLI::CheckedTransformer(choices));
}

}  // namespace

void add_tune(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  GemmDescription& d = arguments->description;
  CLI::App* command =
      app.add_subcommand("tune", "Measure the kernels of a product on a GPU, keep the fastest");
  command->add_option("--shape", arguments->shape, "of the weights, N x K")
      ->option_text("NxK")
      ->required()
      ->check(CLI::Validator(shape_fault, ""));
  command->add_option("--rows", arguments->rows, "of the result; 1,16,64,256 if not given")
      ->option_text("M,M,...")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, (std::int64_t{1} << 31) - 256));
  command->add_option("--device", arguments->device, "cuda, cuda:N or auto; cuda:0 if not given")
      ->option_text("NAME")
      ->check(CLI::Validator(device_fault, ""));
  add_choice(*command, "--form", d.form, kForms,
             "dense, the default, grouped, routed, every_group");
  command->add_option("--groups", d.groups, "matrices [N, K]; 1 if not given")
      ->option_text("G")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--top-k", d.top_k, "routed: choices of each token")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_flag("--shared-x", d.shared_x, "routed, every_group: one x for all choices, groups");
  add_choice(*command, "--epilogue", d.epilogue, kEpilogues,
             "none, the default, swiglu or swiglu_quantize");
  add_choice(*command, "--x", d.x, kDTypes, "bfloat16, the default, or float16");
  add_choice(*command, "--out", d.out, kDTypes, "bfloat16, the default, float16 or float32");
  command->add_flag("--batch-invariant", d.batch_invariant,
                    "only kernels that add up in one order, whatever the rows");
  command
      ->add_option("--workspace", d.max_workspace_bytes,
                   "bytes that plans may take for sums of parts of K; 0 if not given")
      ->option_text("BYTES")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--show", arguments->shown, "kernels of each table; 5 if not given")
      ->option_text("N")
      ->check(CLI::Range(1, 1000));
  command->footer(kFooter);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
