// Loads cuBLASLt and calls it.
#include <map>
#include <mutex>
#include <tuple>

#include "backends/cuda/dynamic_library.h"
#include "backends/cuda/gemm/sm100/cublaslt.h"
#include "core/require.h"

namespace nvfp4::cuda::cublaslt {
namespace {

using Opaque = void*;  ///< handles and descriptors

struct Functions {
  std::size_t (*version)();
  const char* (*status_name)(int);
  int (*create)(Opaque*);
  int (*create_product)(Opaque*, std::int32_t compute, std::int32_t scale);
  int (*destroy_product)(Opaque);
  int (*set_product)(Opaque, int attribute, const void*, std::size_t);
  int (*create_matrix)(Opaque*, std::int32_t type, std::uint64_t rows, std::uint64_t cols,
                       std::int64_t stride);
  int (*destroy_matrix)(Opaque);
  int (*create_preference)(Opaque*);
  int (*destroy_preference)(Opaque);
  int (*set_preference)(Opaque, int attribute, const void*, std::size_t);
  int (*heuristic)(Opaque handle, Opaque product, Opaque a, Opaque b, Opaque c, Opaque d,
                   Opaque preference, int wanted, Heuristic*, int* found);
  int (*multiply)(Opaque handle, Opaque product, const void* alpha, const void* a, Opaque a_matrix,
                  const void* b, Opaque b_matrix, const void* beta, const void* c, Opaque c_matrix,
                  void* d, Opaque d_matrix, const Algorithm*, void* workspace, std::size_t bytes,
                  void* stream);
};

struct Loaded {
  Functions f = {};
  std::string reason;  ///< why the library cannot be used
};

const Loaded& loaded() {
  static const Loaded all = [] {
    Loaded l;
    Functions& f = l.f;
    DynamicLibrary library("cuBLASLt", "NVFP4_CUBLASLT",
                           {"libcublasLt.so.13", "libcublasLt.so.12"});
    library.find("cublasLtGetVersion", f.version);
    library.find("cublasLtGetStatusName", f.status_name);
    library.find("cublasLtCreate", f.create);
    library.find("cublasLtMatmulDescCreate", f.create_product);
    library.find("cublasLtMatmulDescDestroy", f.destroy_product);
    library.find("cublasLtMatmulDescSetAttribute", f.set_product);
    library.find("cublasLtMatrixLayoutCreate", f.create_matrix);
    library.find("cublasLtMatrixLayoutDestroy", f.destroy_matrix);
    library.find("cublasLtMatmulPreferenceCreate", f.create_preference);
    library.find("cublasLtMatmulPreferenceDestroy", f.destroy_preference);
    library.find("cublasLtMatmulPreferenceSetAttribute", f.set_preference);
    library.find("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
    library.find("cublasLtMatmul", f.multiply);
    l.reason = library.reason().empty() ? why_unusable(f.version(), 10)
                                        : "need cuBLASLt, but " + library.reason();
    return l;
  }();
  return all;
}

void check(int status, const char* what) {
  if (status == kSuccess) return;
  throw DeviceError(fmt::format("gemm: cuBLASLt: {}: {}", what, loaded().f.status_name(status)));
}

/// A descriptor with the function that destroys it.
class Descriptor {
 public:
  explicit Descriptor(int (*destroy)(Opaque)) : destroy_(destroy) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ != nullptr) (void)destroy_(descriptor_);
  }
  Opaque* to() { return &descriptor_; }
  Opaque get() const { return descriptor_; }

 private:
  int (*destroy_)(Opaque);
  Opaque descriptor_ = nullptr;
};

/// A matmul of the library. It computes D = Aᵀ · B in column-major order: A is W, and B and D are x
/// and out.
class Matmul {
 public:
  explicit Matmul(const Product& p)
      : f_(loaded().f),
        product_(f_.destroy_product),
        a_(f_.destroy_matrix),
        b_(f_.destroy_matrix),
        d_(f_.destroy_matrix) {
    check(f_.create_product(product_.to(), kCompute32, kReal32), "descriptor");
    set(kTransposeA, kTransposed);
    set(kScaleModeA, kScaleOf16);
    set(kScaleModeB, kScaleOf16);
    set(kScalesOfA, p.w_scales);
    set(kScalesOfB, p.x_scales);
    if (p.factors != nullptr) set(kPointerMode, kFactorsOnDevice);
    const auto n = static_cast<std::uint64_t>(p.n), m = static_cast<std::uint64_t>(p.m),
               k = static_cast<std::uint64_t>(p.k);
    check(f_.create_matrix(a_.to(), kRealE2m1, k, n, p.k), "layout of the weights");
    check(f_.create_matrix(b_.to(), kRealE2m1, k, m, p.x_stride), "layout of x");
    check(f_.create_matrix(d_.to(), p.out_type, n, m, p.out_stride), "layout of out");
  }

  Algorithm choose(Opaque handle, const Product& p) const {
    Descriptor preference(f_.destroy_preference);
    check(f_.create_preference(preference.to()), "preference");
    const auto bytes = static_cast<std::uint64_t>(p.workspace_bytes);
    check(f_.set_preference(preference.get(), kMostWorkspace, &bytes, sizeof bytes), "workspace");
    Heuristic found{};
    int count = 0;
    const int status = f_.heuristic(handle, product_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                    preference.get(), 1, &found, &count);
    require<UnsupportedError>(
        status != kNotSupported && (status != kSuccess || (count > 0 && found.state == kSuccess)),
        "gemm: cuBLASLt {} has no GEMM of NVFP4 [{}, {}] by [{}, {}] on this GPU; "
        "NVFP4_GEMM_ARCHITECTURE=sm80 takes other kernels",
        f_.version(), p.m, p.k, p.n, p.k);
    check(status, "heuristic");
    return found.algorithm;
  }

  void run(Opaque handle, const Algorithm& algorithm, const Product& p) const {
    constexpr float kFactors[] = {1, 0};
    const float* const factors = p.factors != nullptr ? p.factors : kFactors;
    check(f_.multiply(handle, product_.get(), factors, p.w, a_.get(), p.x, b_.get(), factors + 1,
                      p.out, d_.get(), p.out, d_.get(), &algorithm, p.workspace, p.workspace_bytes,
                      p.stream),
          "GEMM");
  }

 private:
  template <class T>
  void set(int attribute, const T& value) {
    check(f_.set_product(product_.get(), attribute, &value, sizeof value), "attribute");
  }

  const Functions& f_;
  Descriptor product_, a_, b_, d_;
};

/// The properties on which the heuristic's choice depends.
using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::size_t,
                         std::int32_t, std::int64_t, bool>;
struct OfDevice {
  Opaque handle = nullptr;  ///< never destroyed: the library may be unloaded before
  std::map<Shape, Algorithm> chosen;
};

}  // namespace

std::string why_unusable(std::size_t version, int compute_major) {
  if (version < kOldestVersion)
    return fmt::format("need cuBLASLt of version {} or newer, not {}", kOldestVersion, version);
  if (compute_major != 10)
    return fmt::format("need a GPU of compute capability 10.x, not {}.x", compute_major);
  return "";
}

std::string why_unusable() { return loaded().reason; }

void multiply(const Product& p) {
  const std::string& reason = loaded().reason;
  require<UnsupportedError>(reason.empty(), "gemm: the kernels of sm100 {}", reason);
  static std::mutex mutex;
  static std::map<int, OfDevice> devices;
  const Matmul matmul(p);
  Opaque handle = nullptr;
  Algorithm algorithm{};
  {
    const std::lock_guard lock(mutex);
    OfDevice& of = devices[p.device];
    if (of.handle == nullptr) check(loaded().f.create(&of.handle), "handle");
    handle = of.handle;
    const Shape shape{p.n,
                      p.m,
                      p.k,
                      p.x_stride,
                      p.workspace_bytes,
                      p.out_type,
                      p.out_stride,
                      p.factors != nullptr};
    auto found = of.chosen.find(shape);
    if (found == of.chosen.end()) found = of.chosen.emplace(shape, matmul.choose(handle, p)).first;
    algorithm = found->second;
  }
  matmul.run(handle, algorithm, p);
}

}  // namespace nvfp4::cuda::cublaslt
