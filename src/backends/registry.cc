#include <cstdlib>

#include "backends/backend.h"
#include "backends/cpu/cpu.h"
#include "backends/cuda/gemm_backend.h"
#include "backends/gemm_backend.h"
#include "backends/host/host.h"
#include "backends/reference/reference.h"
#include "core/require.h"
#include "nvfp4/runtime.h"

namespace nvfp4 {
namespace {

const BackendEntry& reference_entry() {
  static const BackendEntry entry = [] {
    const Backend& ref = reference::backend();
    return BackendEntry{&ref, {std::string(ref.name), true, "", std::string(ref.description)}};
  }();
  return entry;
}

/// Returns the first backend of this build, best first, for which `f` is true, or null.
template <class F>
const BackendEntry* find_entry_if(F&& f) {
  for (const BackendEntry& e : cpu::backends())
    if (f(e)) return &e;
  return f(reference_entry()) ? &reference_entry() : nullptr;
}

/// Returns the entry with this name. "" is the first available one.
const BackendEntry& find_entry(std::string_view name) {
  std::string wanted(name);
  std::string_view source = "backend";
  if (wanted.empty()) {
    if (const char* text = std::getenv("NVFP4_BACKEND"); text != nullptr && *text != '\0') {
      wanted = text;
      source = "NVFP4_BACKEND";
    }
  }
  std::string names;
  const BackendEntry* const found = find_entry_if([&](const BackendEntry& e) {
    names += (names.empty() ? "" : ", ") + e.info.name;
    return wanted.empty() ? e.info.available : e.info.name == wanted;
  });
  if (found == nullptr)
    throw ValueError(fmt::format("{} = '{}', must be one of {}", source, wanted, names),
                     ErrorCode::not_a_choice);
  require<UnsupportedError>(found->info.available, ErrorCode::backend_unavailable,
                            "{} = '{}' cannot run here: {}", source, wanted, found->info.reason);
  return *found;
}

const GemmBackendEntry* first_gemm_backend = nullptr;

/// The GEMM backends, one for each kind of device.
constexpr GemmBackendEntry kGemmBackends[] = {
    {[](Device d) { return d.type == DeviceType::cpu; },
     [](Device) -> const GemmBackend& { return host::cpu_gemm_backend(); }},
    {[](Device d) { return d.type == DeviceType::cuda; }, cuda::gpu_gemm_backend},
};

}  // namespace

const GemmBackend& gemm_backend(Device device) {
  if (first_gemm_backend != nullptr && first_gemm_backend->serves(device))
    return first_gemm_backend->get(device);
  for (const GemmBackendEntry& e : kGemmBackends)
    if (e.serves(device)) return e.get(device);
  throw UnsupportedError(fmt::format("device = {}: no kernel runs there", device_name(device)),
                         ErrorCode::device_unavailable);
}

void set_first_gemm_backend(const GemmBackendEntry* entry) { first_gemm_backend = entry; }

const Backend& find_backend(std::string_view name) { return *find_entry(name).backend; }

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  for (const BackendEntry& e : cpu::backends()) list.push_back(e.info);
  list.push_back(reference_entry().info);
  return list;
}

BackendInfo select_backend(std::string_view name) { return find_entry(name).info; }

}  // namespace nvfp4
