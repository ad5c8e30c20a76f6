#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "nvfp4/matrix.h"

/// Functions that launchers share. Host only.
namespace nvfp4::cuda {

/// Throws DeviceError with the name of the call if it failed.
void check(cudaError_t status, const char* what);

inline cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Makes `device` current for the calling thread; the destructor restores the previous device.
class Current {
 public:
  explicit Current(Device device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

int multiprocessors(Device device);
/// Returns the largest shared memory of a thread block in bytes.
int shared_bytes(Device device);
/// Returns 9 for sm_90.
int compute_major(Device device);
int compute_minor(Device device);
/// Reports whether kernels of a stream may overlap on the current device: programmatic dependent
/// launch.
bool has_dependent_launch();

/// Throws UnsupportedError if rows are too long or too many for the fused kernels.
void require_row_size(std::int64_t rows, std::int64_t elements);

/// Calls `f` with the type as a compile-time constant.
template <class F>
void visit_dtype(DType type, F&& f) {
  if (type == DType::f32)
    f(std::integral_constant<DType, DType::f32>{});
  else if (type == DType::bf16)
    f(std::integral_constant<DType, DType::bf16>{});
  else
    f(std::integral_constant<DType, DType::f16>{});
}

}  // namespace nvfp4::cuda
