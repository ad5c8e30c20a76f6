// Lists the claims that a run does not prove.
#include "selftest/run.h"

namespace nvfp4::selftest {
namespace {

std::vector<std::string> of_gpu(const DeviceInfo& gpu) {
  const std::string name = device_name(gpu.device);
  if (!gpu.available) return {fmt::format("{}: not tested, {}", name, gpu.reason)};
  std::vector<std::string> all;
  if (gpu.architecture != "sm_90")
    all.push_back(
        fmt::format("{}: the kernels of this version were developed and measured on sm_90, and for "
                    "{} only compiled; this may be their first run on such a GPU",
                    name, gpu.architecture));
  // Blackwell: compute capability 10.x to 12.x.
  if (gpu.architecture.starts_with("sm_12") && gpu.architecture.size() == 6)
    all.push_back(fmt::format(
        "{}: the FP4 instruction (mma with block_scale) in GEMMs, bit for bit; only what stands "
        "above about it is checked. W4A4 runs on it where K is a multiple of 64",
        name));
  else if (gpu.architecture.starts_with("sm_1") && gpu.architecture.size() == 6)
    all.push_back(fmt::format(
        "{}: the FP4 instruction (tcgen05). No kernel of this version uses it: W4A16 and W4A4 run "
        "on BF16 and FP16 tensor cores, but for W4A4 of many rows on 10.x with cuBLASLt. Its "
        "rounding and its speed were not measured",
        name));
  return all;
}

}  // namespace

std::vector<std::string> not_proven(const SelftestOptions& options, const SelftestReport& report) {
  std::vector<std::string> all;
  for (const BackendInfo& b : report.backends)
    if (!b.available) all.push_back(fmt::format("{}: not run, {}", b.name, b.reason));
  if (options.device)
    all.push_back(fmt::format("devices other than {}: not selected", device_name(*options.device)));
  else if (report.gpus.empty())
    all.push_back(fmt::format("GPUs: none was tested, {}", why_unavailable(Device::cuda())));
  for (const SelftestGpu& gpu : report.gpus)
    if (!options.device || *options.device == gpu.info.device)
      for (std::string& sentence : of_gpu(gpu.info)) all.push_back(std::move(sentence));
  all.emplace_back("other sizes, epilogues and layers; clocks, power and memory over hours");
  return all;
}

}  // namespace nvfp4::selftest
