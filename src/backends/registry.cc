#include <algorithm>
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

struct Entry {
  const Backend* backend;  // null: not on this machine
  BackendInfo info;
};

/// Every backend of this build, best first; "" takes the first that is available.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> list;
    for (const cpu::Target& t : cpu::targets())
      list.push_back({t.backend, {t.name, t.backend != nullptr, t.reason, t.description}});
    const Backend& ref = reference::backend();
    list.push_back({&ref, {std::string(ref.name), true, "", std::string(ref.description)}});
    return list;
  }();
  return all;
}

const Entry& find_entry(std::string_view name) {
  std::string wanted(name);
  std::string_view source = "backend";
  if (wanted.empty()) {
    if (const char* text = std::getenv("NVFP4_BACKEND"); text != nullptr && *text != '\0') {
      wanted = text;
      source = "NVFP4_BACKEND";
    }
  }
  std::string names;
  for (const Entry& e : entries()) {
    if (wanted.empty() && e.backend != nullptr) return e;
    if (e.info.name == wanted) {
      require<UnsupportedError>(e.backend != nullptr, "{} = '{}' cannot run here: {}", source,
                                wanted, e.info.reason);
      return e;
    }
    names += (names.empty() ? "" : ", ") + e.info.name;
  }
  throw UnsupportedError(fmt::format("{} = '{}', must be one of {}", source, wanted, names));
}

const GemmBackendEntry* first_gemm_backend = nullptr;

/// Products: one entry for each kind of device.
constexpr GemmBackendEntry kGemmBackends[] = {
    {[](Device d) { return d.type == DeviceType::cpu; },
     [](Device) -> const GemmBackend& { return host::gemm_backend(); }},
    {[](Device d) { return d.type == DeviceType::cuda; }, cuda::gemm_backend},
};

}  // namespace

const GemmBackend& gemm_backend(Device device) {
  if (first_gemm_backend != nullptr && first_gemm_backend->serves(device))
    return first_gemm_backend->get(device);
  for (const GemmBackendEntry& e : kGemmBackends)
    if (e.serves(device)) return e.get(device);
  throw UnsupportedError(fmt::format("device = {}: no products run there", device_name(device)));
}

void set_first_gemm_backend(const GemmBackendEntry* entry) { first_gemm_backend = entry; }

const Backend& find_backend(std::string_view name) { return *find_entry(name).backend; }

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  for (const Entry& e : entries()) list.push_back(e.info);
  return list;
}

BackendInfo select_backend(std::string_view name) { return find_entry(name).info; }

}  // namespace nvfp4
