// Prints nvfp4 --version; with --verbose also the properties of the build and machine.
#include <fmt/format.h>

#include "backends/cuda_build.h"
#include "commands.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"

namespace nvfp4::cli {
namespace {

std::string details() {
  std::string text;
  for (const BackendInfo& b : backends())
    text += fmt::format("  {:<15} {}\n", b.name, b.available ? b.description : b.reason);
  const CudaBuild cuda = cuda_build();
  text += cuda.version.empty() ? "CUDA: not in this build\n"
                               : fmt::format("CUDA {}: machine code for {}; driver {} or newer\n",
                                             cuda.version, cuda.architectures, cuda.driver);
  for (const DeviceInfo& d : cuda_devices())
    text += fmt::format("  {:<15} {}, {}{}\n", fmt::format("cuda:{}", d.device.index), d.name,
                        d.architecture, d.available ? "" : fmt::format(": {}", d.reason));
  if (!cuda.version.empty() && cuda_devices().empty())
    text += fmt::format("  {}\n", why_unavailable(Device::cuda()));
  return "CPU, best first:\n" + text;
}

}  // namespace

std::string version_text(bool verbose) {
  std::string text = fmt::format("nvfp4 {}", version());
  if (verbose) text += '\n' + details();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace nvfp4::cli
