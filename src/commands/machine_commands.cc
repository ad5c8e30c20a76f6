#include "commands/machine_commands.h"

#include <fmt/ranges.h>

#include "commands/builders.h"
#include "nvfp4/runtime.h"
#include "selftest/selftest.h"

namespace nvfp4::command_table {
namespace {

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendInfo& b : backends()) names.push_back(b.name);
  return names;
}

}  // namespace

CommandOption backend() {
  std::vector<std::string> names = backend_names();
  std::string text =
      fmt::format("kernels of the CPU: {}; the best that this machine runs if not given",
                  fmt::join(names, ", "));
  return option("--backend", "NAME", "", std::move(text), std::move(names));
}

Command bench_command() {
  CommandOption device = option("--device", "NAME", "cpu", "cpu", {"cpu"});
  CommandOption of = backend();
  of.text = fmt::format("kernels: {}; the best that this machine runs if not given",
                        fmt::join(of.choices, ", "));
  return {"bench",
          "",
          "Measure this machine against its own memory bandwidth",
          {of_the_command(std::move(device)), of_the_command(std::move(of)), threads_option()},
          R"(
The matrices are far larger than the caches. Each figure is the best of several
runs. "of copy" is the rate of bytes read and written, as a share of that of a
plain copy with as many threads.

Example:
  nvfp4 bench
)"};
}

Command tune_command() {
  const std::vector<std::string> x_types = {"bfloat16", "float16"};
  std::vector<std::string> out_types = x_types;
  out_types.emplace_back("float32");
  CommandOption shape = option("--shape", "NxK", "", "shape of the weights, such as 4096x7168");
  shape.required = true;
  Options options = {
      std::move(shape),
      option("--rows", "M,M,...", "1,16,64,256", "rows of the result; 1,16,64,256 if not given"),
      option("--device", "NAME", "cuda:0", "cuda, cuda:N or auto; cuda:0 if not given"),
      option("--form", "NAME", "dense", "dense (the default), grouped, routed or every_group",
             {"dense", "grouped", "routed", "every_group"}),
      option("--groups", "G", "1", "number of matrices [N, K]; 1 if not given"),
      option("--top-k", "N", "0", "routed: experts of each token; 0 if not given"),
      flag("--shared-x",
           "routed, every_group: one x for all experts of a token, or for all groups"),
      option("--epilogue", "NAME", "none", "none (the default), swiglu or swiglu_quantize",
             {"none", "swiglu", "swiglu_quantize"}),
      option("--x", "NAME", "bfloat16", "dtype of x: bfloat16 (the default) or float16", x_types),
      option("--out", "NAME", "bfloat16",
             "dtype of the result: bfloat16 (the default), float16 or float32",
             std::move(out_types)),
      flag("--batch-invariant",
           "only kernels whose order of summation does not depend on the rows"),
      option("--workspace", "BYTES", "0",
             "memory that a plan may use for partial sums over K; 0 if not given"),
      option("--show", "N", "5", "how many kernels of each table to show; 5 if not given")};
  for (CommandOption& o : options) o.keyword.clear();  // Python has plan_gemm(autotune=True)
  return {"tune", "", "Measure the kernels of a GEMM on a GPU and keep the fastest",
          std::move(options), R"(
The fastest kernel of each GEMM is kept in the file that NVFP4_TUNE_CACHE names,
else in nvfp4/gemm.txt below XDG_CACHE_HOME or ~/.cache, for this GPU, driver
and library. Only plans with autotune read it. "of chosen" is the time relative
to the kernel of a plan without autotune. W4A4 decodes x first; its GEMM is the
same.

Examples:
  nvfp4 tune --shape 4096x7168
  nvfp4 tune --shape 5120x2880 --rows 1,8,32 --x float16 --device cuda:1
  nvfp4 tune --shape 4096x7168 --form grouped --groups 256 --rows 1024
)"};
}

Command selftest_command() {
  const std::vector<std::string>& checks = selftest_checks();
  Options options = {
      option("--device", "NAME", "",
             "check only cpu, cuda or cuda:N; the CPU and every GPU if not given"),
      option("--out", "FILE", "",
             "also write the report to FILE, to attach to an issue: text, then JSON; JSON alone if "
             "FILE ends in .json"),
      flag("--no-rates", "compare only, measure no rates"),
      option("--inject-fault", "CHECK", "",
             fmt::format(
                 "flip one bit of each result of a check, to see that the selftest finds it: {}",
                 fmt::join(checks, ", ")),
             checks),
      json("print the report as JSON"),
      threads_option(),
      quiet("no progress")};
  for (CommandOption& o : options) o.keyword.clear();
  return {"selftest", "", "Check the kernels on this machine against the reference",
          std::move(options), R"(
Conversions, quantizers and layouts must give the bits of the reference, for
every instruction set of the CPU and on every GPU; the reference must give those
of tables and checksums. GEMM of whole numbers must be exact, other GEMM within
a bound. On a GPU every kernel of each architecture that runs there is checked.
Rates are shown beside the limits of the machine's memory and tensor cores.

Exit status: 0 all results are right, 3 some are wrong, 1 the device cannot be
used or FILE cannot be written.

Examples:
  nvfp4 selftest --out report.txt
  nvfp4 selftest --device cpu --no-rates
  nvfp4 selftest --inject-fault w4a16 --no-rates   # must fail
)"};
}

}  // namespace nvfp4::command_table
