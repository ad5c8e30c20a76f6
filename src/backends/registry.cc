#include <algorithm>
#include <cstdlib>

#include "backends/backend.h"
#include "backends/cpu/cpu.h"
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

}  // namespace

const Backend& find_backend(std::string_view name) { return *find_entry(name).backend; }

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  for (const Entry& e : entries()) list.push_back(e.info);
  return list;
}

BackendInfo select_backend(std::string_view name) { return find_entry(name).info; }

}  // namespace nvfp4
