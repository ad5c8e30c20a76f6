#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>

#include "nvfp4/error.h"
#include "nvfp4/matrix.h"

namespace nvfp4::bench {

/// BF16 GEMMs x · wᵀ by cuBLAS. The library is loaded at run time: nothing links against it.
class Cublas {
 public:
  Cublas() {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if ((library_ = dlopen(name, RTLD_NOW)) != nullptr) break;
    if (library_ == nullptr) return;
    const auto create = find<int (*)(void**)>("cublasCreate_v2");
    set_stream_ = find<int (*)(void*, void*)>("cublasSetStream_v2");
    set_workspace_ = find<int (*)(void*, void*, std::size_t)>("cublasSetWorkspace_v2");
    gemm_ = find<Gemm>("cublasGemmEx");
    if (create == nullptr || gemm_ == nullptr || create(&handle_) != 0) handle_ = nullptr;
    workspace_ = std::make_unique<Buffer>(kWorkspace, Device::cuda());
  }
  bool available() const { return handle_ != nullptr; }

  void multiply(const MatrixView& x, const MatrixView& w, const MatrixSpan& out, Stream stream) {
    const float one = 1, zero = 0;
    const auto n = static_cast<int>(w.rows), m = static_cast<int>(x.rows),
               k = static_cast<int>(x.cols);
    // Graphs need a workspace of the caller, which is set after the stream.
    int status = set_stream_(handle_, stream.handle);
    if (status == 0) status = set_workspace_(handle_, workspace_->data(), kWorkspace);
    if (status == 0)
      status = gemm_(handle_, kTransposed, kAsItIs, n, m, k, &one, w.data, kBf16,
                     static_cast<int>(w.stride), x.data, kBf16, static_cast<int>(x.stride), &zero,
                     out.data, kBf16, static_cast<int>(out.stride), kFp32Sums, kDefault);
    if (status != 0) throw DeviceError("cuBLAS failed");
  }

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                       const void*, int, int, const void*, void*, int, int, int, int);
  // The values are those of cublas_api.h and library_types.h.
  static constexpr int kAsItIs = 0, kTransposed = 1, kBf16 = 14, kFp32Sums = 68, kDefault = -1;
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;

  template <class F>
  F find(const char* name) {
    return reinterpret_cast<F>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* handle_ = nullptr;
  int (*set_stream_)(void*, void*) = nullptr;
  int (*set_workspace_)(void*, void*, std::size_t) = nullptr;
  Gemm gemm_ = nullptr;
  std::unique_ptr<Buffer> workspace_;
};

}  // namespace nvfp4::bench
