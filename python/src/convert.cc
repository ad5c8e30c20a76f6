#include "nvfp4/convert.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bind.h"
#include "checkpoint_options.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

std::string convert_json(const fs::path& input, const fs::path& output, const std::string& to,
                         const std::optional<std::string>& scheme, const std::string& quantizer,
                         std::optional<fs::path> input_amax, bool resume, bool overwrite,
                         bool dry_run, bool drop, bool force, bool decode,
                         const std::string& backend, const nb::object& progress) {
  ConvertOptions options;
  options.input = input;
  options.output = output;
  options.to = to;
  if (scheme) options.scheme = scheme_from_name(*scheme);
  options.quantizer = quantizer_from_name(quantizer);
  options.input_amax = std::move(input_amax);
  options.resume = resume;
  options.overwrite = overwrite;
  options.dry_run = dry_run;
  options.drop = drop;
  options.force = force;
  options.decode = decode;
  options.backend = backend;
  return interruptible(progress, [&](const OnProgress& on_progress) {
    options.progress = on_progress;
    return to_json(convert_checkpoint(options));
  });
}

}  // namespace

void bind_convert(nb::module_& m) {
  m.def("conversion_targets", &conversion_targets);
  m.def("convert", &convert_json, "input"_a, "output"_a, "to"_a, "scheme"_a = nb::none(),
        "quantizer"_a = "mse", "input_amax"_a = nb::none(), "resume"_a = false,
        "overwrite"_a = false, "dry_run"_a = false, "drop"_a = false, "force"_a = false,
        "decode"_a = false, "backend"_a = "", "progress"_a = nb::none());
}

}  // namespace nvfp4::python
