#include "nvfp4/repair.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "bind.h"
#include "checkpoint_options.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

std::string repair_json(const fs::path& input, const fs::path& output,
                        std::optional<fs::path> source, bool scales_swizzled,
                        bool high_nibble_first, std::optional<fs::path> input_amax,
                        const std::string& quantizer, bool resume, bool overwrite, bool dry_run,
                        const nb::object& progress) {
  RepairOptions options;
  options.input = input;
  options.output = output;
  options.source = std::move(source);
  options.scales_swizzled = scales_swizzled;
  options.high_nibble_first = high_nibble_first;
  options.input_amax = std::move(input_amax);
  options.quantizer = quantizer_from_name(quantizer);
  options.resume = resume;
  options.overwrite = overwrite;
  options.dry_run = dry_run;
  return interruptible(progress, [&](const OnProgress& on_progress) {
    options.progress = on_progress;
    return to_json(repair_checkpoint(options));
  });
}

}  // namespace

void bind_repair(nb::module_& m) {
  m.def("repair", &repair_json, "input"_a, "output"_a, "source"_a = nb::none(),
        "scales_swizzled"_a = false, "high_nibble_first"_a = false, "input_amax"_a = nb::none(),
        "quantizer"_a = "mse", "resume"_a = false, "overwrite"_a = false, "dry_run"_a = false,
        "progress"_a = nb::none());
}

}  // namespace nvfp4::python
