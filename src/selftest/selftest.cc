// Decides which checks run on which subjects.
#include "selftest/selftest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "backends/backend.h"
#include "backends/gemm_backend.h"
#include "backends/gpu_limits.h"
#include "core/require.h"
#include "nvfp4/error.h"
#include "nvfp4/gemm.h"
#include "selftest/rates.h"
#include "selftest/run.h"

namespace nvfp4 {
namespace selftest {
namespace {

/// Returns the name of the CPU. Linux reports it for x86; elsewhere it is empty.
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const std::size_t at = line.find(": "); at != line.npos) return line.substr(at + 2);
  return {};
}

std::vector<std::string> kernels_of(Device device) {
  const GemmBackend& backend = gemm_backend(device);
  return backend.kernel_names == nullptr ? std::vector<std::string>{}
                                         : backend.kernel_names(device);
}

/// Returns the subjects of the checks: instruction sets, then GPUs.
std::vector<Subject> subjects_of(const SelftestOptions& options, const SelftestReport& report) {
  std::vector<Subject> all;
  const bool only_gpu = options.device && options.device->type == DeviceType::cuda;
  if (!only_gpu)
    for (const BackendInfo& b : report.backends)
      if (b.available && find_backend(b.name).name == b.name)  // "cpu" is an alias of the best one
        all.push_back({.name = b.name, .backend = b.name});
  for (const SelftestGpu& gpu : report.gpus)
    if (const Device d = gpu.info.device;
        gpu.info.available && (!options.device || *options.device == d))
      all.push_back({.name = device_name(d), .device = d, .kernels = kernels_of(d)});
  return all;
}

struct NamedGemm {
  std::string_view name;
  GemmDescription description;
};

/// Returns GEMM problems with the sizes of published models.
std::vector<NamedGemm> gemm_problems() {
  std::vector<NamedGemm> all;
  for (const std::int64_t m : {1, 16, 64, 256, 4096})
    all.push_back({"W4A16", {.m = m, .n = 4096, .k = 4096}});
  for (const std::int64_t m : {1, 4096})
    all.push_back({"W4A4", {.m = m, .n = 4096, .k = 4096, .scheme = Scheme::w4a4}});
  all.push_back(
      {"W4A16 grouped", {.m = 512, .n = 2048, .k = 4096, .groups = 64, .form = GemmForm::grouped}});
  all.push_back(
      {"W4A16 routed",
       {.m = 8, .n = 2048, .k = 4096, .groups = 64, .form = GemmForm::routed, .top_k = 8}});
  return all;
}

std::vector<std::string> kernels_not_tried(const std::vector<Subject>& subjects,
                                           const SelftestReport& report) {
  std::vector<std::string> all;
  for (const Subject& s : subjects) {
    std::vector<std::string> left = s.kernels;
    for (const SelftestCheck& c : report.checks)
      if (c.subject == s.name)
        std::erase_if(left, [&](const std::string& k) {
          return std::ranges::find(c.kernels, k) != c.kernels.end();
        });
    if (!left.empty())
      all.push_back(fmt::format(
          "{}: {} kernels that no GEMM of this selftest can use, or that this build lacks: {}",
          s.name, left.size(), fmt::join(left, ", ")));
  }
  return all;
}

void add_plans(const std::vector<Device>& devices, SelftestReport& report) {
  for (const Device device : devices)
    for (const NamedGemm& problem : gemm_problems()) {
      const GemmDescription& d = problem.description;
      std::string kernel;
      try {
        kernel = plan_gemm(d, device).kernel();
      } catch (const Error& e) {
        kernel = fmt::format("none: {}", e.what());
      }
      report.plans.push_back(
          {device_name(device),
           fmt::format("{} [{}, {}] x [{}, {}]{}", problem.name, d.m, d.k, d.n, d.k,
                       d.groups > 1 ? fmt::format(", {} matrices", d.groups) : ""),
           std::move(kernel)});
    }
}

void add_gpus(SelftestReport& report) {
  for (DeviceInfo& info : cuda_devices()) {
    const GpuLimits limits = info.available ? gpu_limits(info.device) : GpuLimits{};
    report.gpus.push_back({std::move(info), limits.multiprocessors, limits.memory_bytes,
                           limits.clock_mhz, limits.memory_gb_s});
  }
}

void require_available(Device device) {
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), ErrorCode::device_unavailable, "device = {}: {}",
                            device_name(device), reason);
}

}  // namespace

void check_all(Run& run, const std::vector<Subject>& subjects) {
  for (const Subject& s : subjects) check_formats(run, s);
  for (const Subject& s : subjects)
    if (s.device.type == DeviceType::cuda || s.backend == kReference) check_layouts(run, s);
  check_quantizers(run, subjects);
  check_dequantize(run, subjects);
  check_fused(run, subjects);
  check_gemms(run, subjects);
  for (const Subject& s : subjects)
    if (s.device.type == DeviceType::cuda || s.backend == kReference) check_fp4_instruction(run, s);
}

}  // namespace selftest

const std::vector<std::string>& selftest_checks() {
  static const std::vector<std::string> all = {"formats", "layouts", "quantize", "dequantize",
                                               "fused",   "w4a16",   "w4a4",     "fp4"};
  return all;
}

bool SelftestReport::passed() const {
  return !checks.empty() &&
         std::ranges::all_of(checks, [](const SelftestCheck& c) { return c.wrong == 0; });
}

SelftestReport run_selftest(const SelftestOptions& options) {
  using namespace selftest;
  require<ValueError>(
      options.inject_fault.empty() || std::ranges::count(selftest_checks(), options.inject_fault),
      ErrorCode::not_a_choice, "selftest: inject_fault = '{}', must be one of {}",
      options.inject_fault, fmt::join(selftest_checks(), ", "));
  if (options.device) require_available(*options.device);
  const auto start = std::chrono::steady_clock::now();
  SelftestReport report;
  report.version = version();
  report.cpu = cpu_name();
  report.threads = threads();
  report.backend = find_backend("").name;
  report.backends = backends();
  report.cuda = cuda_build();
  add_gpus(report);
  const std::vector<Subject> subjects = subjects_of(options, report);
  std::vector<Device> devices;
  for (const Subject& s : subjects)
    if (std::ranges::find(devices, s.device) == devices.end()) devices.push_back(s.device);
  add_plans(devices, report);

  Run run(options, report);
  check_all(run, subjects);
  std::ranges::stable_sort(report.checks, {}, [&](const SelftestCheck& c) {
    return std::ranges::find(subjects, c.subject, &Subject::name) - subjects.begin();
  });

  std::vector<std::string> not_run = kernels_not_tried(subjects, report);
  if (options.rates)
    for (const Subject& s : subjects)
      if (s.device.type == DeviceType::cuda || s.backend == report.backend) {
        if (options.progress) options.progress(fmt::format("{}: rates", s.name));
        try {
          measure(s, sizes_of(s.device, s.backend), report);
        } catch (const std::exception& e) {
          not_run.push_back(fmt::format("{}: rates, {}", s.name, e.what()));
        }
      }
  report.not_proven = not_proven(options, report);
  report.not_proven.insert(report.not_proven.begin(), not_run.begin(), not_run.end());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::vector<SelftestRate> measure_rates(Device device, const std::string& backend) {
  using namespace selftest;
  require_available(device);
  SelftestReport report;
  add_gpus(report);
  Subject subject{.name = device_name(device), .device = device};
  if (device.type == DeviceType::cpu) subject.name = subject.backend = find_backend(backend).name;
  measure(subject, sizes_of(device, subject.backend), report);
  return std::move(report.rates);
}

}  // namespace nvfp4
