// Loads cuBLASLt and calls it.
#include <map>
#include <mutex>
#include <optional>
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
    if (!library.reason().empty()) l.reason = "need cuBLASLt, but " + library.reason();
    return l;
  }();
  return all;
}

void check(int status, const char* what) {
  if (status == kSuccess) return;
  throw DeviceError(fmt::format("gemm: cuBLASLt: {}: {}", what, loaded().f.status_name(status)));
}

std::string why_unusable_since(std::size_t oldest) {
  const Loaded& l = loaded();
  return l.reason.empty() ? why_unusable(l.f.version(), oldest) : l.reason;
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
    const bool fp8 = p.type == kRealE4m3;
    set(kScaleModeA, fp8 ? kFactorOfRow : kScaleOf16);
    set(kScaleModeB, fp8 ? kFactorOfRow : kScaleOf16);
    set(kScalesOfA, p.w_scales);
    set(kScalesOfB, p.x_scales);
    if (p.factors != nullptr) set(kPointerMode, kFactorsOnDevice);
    if (fp8) set(kFastAccumulation, static_cast<std::int8_t>(p.fast_accumulation));
    if (p.bias != nullptr) {
      set(kEpilogue, kAddBias);
      set(kBias, p.bias);
      set(kBiasType, p.out_type);
    }
    const auto n = static_cast<std::uint64_t>(p.n), m = static_cast<std::uint64_t>(p.m),
               k = static_cast<std::uint64_t>(p.k);
    check(f_.create_matrix(a_.to(), p.type, k, n, p.k), "layout of the weights");
    check(f_.create_matrix(b_.to(), p.type, k, m, p.x_stride), "layout of x");
    check(f_.create_matrix(d_.to(), p.out_type, n, m, p.out_stride), "layout of out");
  }

  /// Returns the first algorithm that the library can run, if there is any.
  std::optional<Algorithm> choose(Opaque handle, const Product& p) const {
    Descriptor preference(f_.destroy_preference);
    check(f_.create_preference(preference.to()), "preference");
    const auto bytes = static_cast<std::uint64_t>(p.workspace_bytes);
    check(f_.set_preference(preference.get(), kMostWorkspace, &bytes, sizeof bytes), "workspace");
    constexpr std::uint32_t kAlignment = 16;  // of out, which is C and D; the default is 256
    for (const int of : {kAlignmentOfC, kAlignmentOfD})
      check(f_.set_preference(preference.get(), of, &kAlignment, sizeof kAlignment), "alignment");
    constexpr int kMost = 8;
    Heuristic found[kMost] = {};
    int count = 0;
    const int status = f_.heuristic(handle, product_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                    preference.get(), kMost, found, &count);
    if (status != kNotSupported) check(status, "heuristic");
    for (int i = 0; i < count; ++i)
      if (found[i].state == kSuccess) return found[i].algorithm;
    return std::nullopt;
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
                         std::int32_t, std::int64_t, bool, std::int32_t, bool, bool>;
struct OfDevice {
  Opaque handle = nullptr;  ///< never destroyed: the library may be unloaded before
  std::map<Shape, Algorithm> chosen;
};

Product planned(Product p) {
  p.m = p.planned_m;
  return p;
}

/// Returns the handle of the device, and the algorithm that the heuristic chose for the shape.
std::pair<Opaque, std::optional<Algorithm>> algorithm_of(const Product& p) {
  const std::string reason = p.type == kRealE4m3 ? why_unusable_for_fp8() : why_unusable();
  require<UnsupportedError>(reason.empty(), "gemm: the kernels of cuBLASLt {}", reason);
  static std::mutex mutex;
  static std::map<int, OfDevice> devices;
  const std::lock_guard lock(mutex);
  OfDevice& of = devices[p.device];
  if (of.handle == nullptr) check(loaded().f.create(&of.handle), "handle");
  const Shape shape{p.n,
                    p.m,
                    p.k,
                    p.x_stride,
                    p.workspace_bytes,
                    p.out_type,
                    p.out_stride,
                    p.factors != nullptr,
                    p.type,
                    p.bias != nullptr,
                    p.fast_accumulation};
  if (const auto found = of.chosen.find(shape); found != of.chosen.end())
    return {of.handle, found->second};
  const std::optional<Algorithm> algorithm = Matmul(p).choose(of.handle, p);
  if (algorithm) of.chosen.emplace(shape, *algorithm);
  return {of.handle, algorithm};
}

}  // namespace

std::string why_unusable(std::size_t version, std::size_t oldest) {
  if (version >= oldest) return "";
  return fmt::format("need cuBLASLt of version {} or newer, not {}", oldest, version);
}

std::string why_unusable() { return why_unusable_since(kOldestVersion); }
std::string why_unusable_for_fp8() { return why_unusable_since(kOldestVersionOfFp8); }

bool is_supported(const Product& p) {
  return algorithm_of(p).second.has_value() ||
         (p.planned_m != 0 && algorithm_of(planned(p)).second);
}

void multiply(const Product& p) {
  auto [handle, algorithm] = algorithm_of(p);
  if (!algorithm && p.planned_m != 0) algorithm = algorithm_of(planned(p)).second;
  require<UnsupportedError>(
      algorithm.has_value(),
      "gemm: cuBLASLt {} has no GEMM of {} [{}, {}] by [{}, {}] on this GPU; {} takes other "
      "kernels",
      loaded().f.version(), p.type == kRealE4m3 ? "FP8" : "NVFP4", p.m, p.k, p.n, p.k,
      p.type == kRealE4m3 ? "arithmetic = exact" : "NVFP4_GEMM_ARCHITECTURE=sm80");
  Matmul(p).run(handle, *algorithm, p);
}

}  // namespace nvfp4::cuda::cublaslt
