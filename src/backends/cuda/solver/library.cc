// Loads cuSOLVER by dlopen().
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "backends/cuda/solver/cusolver.h"
#include "core/require.h"

namespace nvfp4::cuda::cusolver {
namespace {

using Opaque = void*;  ///< handles and parameters

struct Functions {
  int (*version)(int*);
  int (*create)(Opaque*);
  int (*create_parameters)(Opaque*);
  int (*set_stream)(Opaque, void* stream);
  int (*factor_bytes)(Opaque, Opaque parameters, int fill, std::int64_t n, int type, const void* a,
                      std::int64_t stride, int compute, std::size_t* bytes,
                      std::size_t* host_bytes);
  int (*factor)(Opaque, Opaque parameters, int fill, std::int64_t n, int type, void* a,
                std::int64_t stride, int compute, void* workspace, std::size_t bytes,
                void* host_workspace, std::size_t host_bytes, int* info);
  int (*invert_bytes)(Opaque, int fill, int diagonal, std::int64_t n, int type, void* a,
                      std::int64_t stride, std::size_t* bytes, std::size_t* host_bytes);
  int (*invert)(Opaque, int fill, int diagonal, std::int64_t n, int type, void* a,
                std::int64_t stride, void* workspace, std::size_t bytes, void* host_workspace,
                std::size_t host_bytes, int* info);
};

struct Loaded {
  Functions f = {};
  int version = 0;
  std::string reason;  ///< why the library cannot be used

  template <class F>
  bool find(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    if (function == nullptr && reason.empty())
      reason = fmt::format("the cuSOLVER that was loaded has no {}", name);
    return function != nullptr;
  }
};

void* open_library(std::string& reason) {
  const char* const named = std::getenv("NVFP4_CUSOLVER");
  if (named != nullptr && *named != '\0') {
    void* const library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      reason = fmt::format("NVFP4_CUSOLVER = \"{}\" cannot be loaded: {}", named, dlerror());
    return library;
  }
  for (const char* name : {"libcusolver.so.12", "libcusolver.so.11"})
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  reason = "neither libcusolver.so.12 nor libcusolver.so.11 can be loaded";
  return nullptr;
}

const Loaded& loaded() {
  static const Loaded all = [] {
    Loaded l;
    void* const library = open_library(l.reason);
    if (library == nullptr) return l;
    Functions& f = l.f;
    (void)(l.find(library, "cusolverGetVersion", f.version) &&
           l.find(library, "cusolverDnCreate", f.create) &&
           l.find(library, "cusolverDnCreateParams", f.create_parameters) &&
           l.find(library, "cusolverDnSetStream", f.set_stream) &&
           l.find(library, "cusolverDnXpotrf_bufferSize", f.factor_bytes) &&
           l.find(library, "cusolverDnXpotrf", f.factor) &&
           l.find(library, "cusolverDnXtrtri_bufferSize", f.invert_bytes) &&
           l.find(library, "cusolverDnXtrtri", f.invert));
    if (!l.reason.empty()) return l;
    if (f.version(&l.version) != kSuccess)
      l.reason = "the cuSOLVER that was loaded does not say its version";
    else
      l.reason = why_unusable(l.version);
    return l;
  }();
  return all;
}

void check(int status, const char* what) {
  require<DeviceError>(status == kSuccess, "{}: {}: cusolverStatus_t {}", name(), what, status);
}

struct Handle {
  Opaque handle = nullptr, parameters = nullptr;  ///< never destroyed
};

/// Returns the handle of the current device, set to the problem's stream.
Handle handle_of(const Problem& p) {
  static std::mutex mutex;
  static std::map<int, Handle> handles;
  const std::string& reason = loaded().reason;
  require<UnsupportedError>(reason.empty(), "{}", reason);
  const std::lock_guard lock(mutex);
  Handle& of = handles[p.device];
  if (of.handle == nullptr) check(loaded().f.create(&of.handle), "handle");
  if (of.parameters == nullptr) check(loaded().f.create_parameters(&of.parameters), "parameters");
  check(loaded().f.set_stream(of.handle, p.stream), "stream");
  return of;
}

}  // namespace

std::string why_unusable(int version) {
  return version >= kOldestVersion
             ? ""
             : fmt::format("need cuSOLVER of version {} or newer, not {}", kOldestVersion, version);
}

std::string why_unusable() { return loaded().reason; }

std::string name() {
  const int v = loaded().version;
  return fmt::format("cuSOLVER {}.{}.{}", v / 1000, v / 100 % 10, v % 100);
}

// The library's matrices are column-major: the lower triangle is its upper one, and L is its Uᵀ.

Workspace workspace_of(const Problem& p) {
  const Handle of = handle_of(p);
  const Functions& f = loaded().f;
  Workspace factor, invert;
  check(f.factor_bytes(of.handle, of.parameters, kUpper, p.n, kReal64, p.h, p.n, kReal64,
                       &factor.bytes, &factor.host_bytes),
        "workspace of potrf");
  check(f.invert_bytes(of.handle, kUpper, kNotUnit, p.n, kReal64, p.h, p.n, &invert.bytes,
                       &invert.host_bytes),
        "workspace of trtri");
  return {std::max(factor.bytes, invert.bytes), std::max(factor.host_bytes, invert.host_bytes)};
}

void invert_lower(const Problem& p, const Workspace& w) {
  const Handle of = handle_of(p);
  const Functions& f = loaded().f;
  check(f.factor(of.handle, of.parameters, kUpper, p.n, kReal64, p.h, p.n, kReal64, p.workspace,
                 w.bytes, p.host_workspace, w.host_bytes, p.info),
        "potrf");
  check(f.invert(of.handle, kUpper, kNotUnit, p.n, kReal64, p.h, p.n, p.workspace, w.bytes,
                 p.host_workspace, w.host_bytes, p.info + 1),
        "trtri");
}

}  // namespace nvfp4::cuda::cusolver
