#include "nvfp4/checkpoint.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "bind.h"
#include "checkpoint_options.h"
#include "html/page.h"
#include "nvfp4/error.h"
#include "nvfp4/safetensors.h"
#include "nvfp4/verify.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

std::string quantize_json(const fs::path& input, const fs::path& output, const std::string& scheme,
                          const std::string& format, const std::string& quantizer,
                          std::vector<std::string> ignore, std::vector<std::string> include,
                          std::vector<std::string> fuse, std::optional<fs::path> input_amax,
                          bool resume, bool overwrite, bool dry_run, bool drop, bool force,
                          bool keep_dtype, const std::string& backend, const std::string& device,
                          const nb::object& progress) {
  QuantizeCheckpointOptions options;
  options.input = input;
  options.output = output;
  options.scheme = scheme_from_name(scheme);
  options.format = format;
  options.quantizer = quantizer_from_name(quantizer);
  options.ignore = std::move(ignore);
  options.include = std::move(include);
  options.fuse = std::move(fuse);
  options.input_amax = std::move(input_amax);
  options.resume = resume;
  options.overwrite = overwrite;
  options.dry_run = dry_run;
  options.backend = backend;
  options.drop = drop;
  options.force = force;
  options.keep_dtype = keep_dtype;
  options.device = device_from_name(device);
  return interruptible(progress, [&](const OnProgress& on_progress) {
    options.progress = on_progress;
    return to_json(quantize_checkpoint(options));
  });
}

/// Inputs are never changed; better refused now than after an hour.
void require_outside(const fs::path& html, std::initializer_list<fs::path> inputs) {
  const fs::path real = fs::weakly_canonical(fs::absolute(html));
  if (fs::is_directory(real)) throw ValueError("html = '" + html.string() + "' is a folder");
  if (!fs::is_directory(real.parent_path()))
    throw IoError("html = '" + html.string() + "': there is no such folder");
  for (const fs::path& given : inputs) {
    const fs::path input = fs::weakly_canonical(given);
    if (std::mismatch(input.begin(), input.end(), real.begin(), real.end()).first == input.end())
      throw ValueError("html = '" + html.string() + "' is in an input, which is never changed");
  }
}

}  // namespace

void bind_checkpoint(nb::module_& m) {
  m.def("quantize_checkpoint", &quantize_json, "input"_a, "output"_a, "scheme"_a = "nvfp4",
        "format"_a = "", "quantizer"_a = "mse", "ignore"_a = std::vector<std::string>{},
        "include"_a = std::vector<std::string>{}, "fuse"_a = std::vector<std::string>{},
        "input_amax"_a = nb::none(), "resume"_a = false, "overwrite"_a = false, "dry_run"_a = false,
        "drop"_a = false, "force"_a = false, "keep_dtype"_a = false, "backend"_a = "",
        "device"_a = "cpu", "progress"_a = nb::none());
  m.def(
      "verify",
      [](const fs::path& path, const std::optional<fs::path>& source, const std::string& loader,
         const nb::object& progress) {
        return interruptible(progress, [&](const OnProgress& on_progress) {
          return to_json(verify_checkpoint({path, source, loader, on_progress}));
        });
      },
      "path"_a, "source"_a = nb::none(), "loader"_a = "", "progress"_a = nb::none());
  m.def(
      "inspect",
      [](const fs::path& path, const std::optional<std::string>& tensor, bool histograms,
         const nb::object& progress) {
        return interruptible(progress, [&](const OnProgress& on_progress) {
          return to_json(inspect_checkpoint({path, tensor, histograms, on_progress}));
        });
      },
      "path"_a, "tensor"_a = nb::none(), "histograms"_a = true, "progress"_a = nb::none());
  m.def(
      "compare",
      [](const fs::path& a, const fs::path& b, const std::optional<fs::path>& html,
         const nb::object& progress) {
        return interruptible(progress, [&](const OnProgress& on_progress) {
          if (html) require_outside(*html, {a, b});
          const CompareReport report = compare_checkpoints(a, b, on_progress);
          if (html)
            safetensors::write_file_atomically(*html,
                                               cli::html::page_of(report, a, b, 0, on_progress));
          return to_json(report);
        });
      },
      "a"_a, "b"_a, "html"_a = nb::none(), "progress"_a = nb::none());
  m.def(
      "sample",
      [](const fs::path& output, const std::string& arch, int layers, double scale,
         std::uint64_t seed, int shards, bool overwrite) {
        interruptible(nb::none(), [&](const OnProgress& on_progress) {
          return sample_checkpoint(
              {output, arch, layers, scale, seed, shards, overwrite, on_progress});
        });
      },
      "output"_a, "arch"_a = "llama", "layers"_a = 0, "scale"_a = 0.125, "seed"_a = 0,
      "shards"_a = 0, "overwrite"_a = false);
}

}  // namespace nvfp4::python
