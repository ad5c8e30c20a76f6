// Loads cuSOLVER and calls it.
#include <algorithm>
#include <map>
#include <mutex>

#include "backends/cuda/dynamic_library.h"
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
};

const Loaded& loaded() {
  static const Loaded all = [] {
    Loaded l;
    Functions& f = l.f;
    DynamicLibrary library("cuSOLVER", "NVFP4_CUSOLVER",
                           {"libcusolver.so.12", "libcusolver.so.11"});
    library.find("cusolverGetVersion", f.version);
    library.find("cusolverDnCreate", f.create);
    library.find("cusolverDnCreateParams", f.create_parameters);
    library.find("cusolverDnSetStream", f.set_stream);
    library.find("cusolverDnXpotrf_bufferSize", f.factor_bytes);
    library.find("cusolverDnXpotrf", f.factor);
    library.find("cusolverDnXtrtri_bufferSize", f.invert_bytes);
    library.find("cusolverDnXtrtri", f.invert);
    l.reason = library.reason();
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
