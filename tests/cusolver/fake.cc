// A library with the functions of cuSOLVER that cuda/solver asks for, which factors on the CPU:
// what it is told is what NVIDIA's documentation wants, or it says so.
#include "cusolver/fake.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

FakeCuSolver state;
constexpr int kUpper = 1, kNotUnit = 0, kReal64 = 1, kInvalid = 3;
char handle, parameters;

bool wanted(bool right) {
  if (!right) ++state.faults;
  return right;
}
/// By columns.
double& at(double* a, std::int64_t stride, std::int64_t row, std::int64_t column) {
  return a[column * stride + row];
}

}  // namespace

extern "C" {

FakeCuSolver* fake_cusolver() { return &state; }

int cusolverGetVersion(int* version) {
  *version = state.version;
  return 0;
}
int cusolverDnCreate(void** made) {
  ++state.handles;
  *made = &handle;
  return 0;
}
int cusolverDnCreateParams(void** made) {
  *made = &parameters;
  return 0;
}
int cusolverDnSetStream(void* of, void* stream) {
  if (!wanted(of == &handle)) return kInvalid;
  state.stream = stream;
  return 0;
}
int cusolverDnXpotrf_bufferSize(void* of, void* with, int fill, std::int64_t n, int type,
                                const void*, std::int64_t stride, int compute, std::size_t* bytes,
                                std::size_t* host_bytes) {
  if (!wanted(of == &handle && with == &parameters && fill == kUpper && type == kReal64 &&
              compute == kReal64 && stride >= n))
    return kInvalid;
  *bytes = FakeCuSolver::kBytes;
  *host_bytes = 8;
  return 0;
}
int cusolverDnXtrtri_bufferSize(void* of, int fill, int diagonal, std::int64_t n, int type, void*,
                                std::int64_t stride, std::size_t* bytes, std::size_t* host_bytes) {
  if (!wanted(of == &handle && fill == kUpper && diagonal == kNotUnit && type == kReal64 &&
              stride >= n))
    return kInvalid;
  *bytes = 8;
  *host_bytes = FakeCuSolver::kHostBytes;
  return 0;
}

/// U with A = UᵀU in the upper triangle.
int cusolverDnXpotrf(void* of, void* with, int fill, std::int64_t n, int type, void* matrix,
                     std::int64_t stride, int compute, void* workspace, std::size_t bytes,
                     void* host_workspace, std::size_t host_bytes, int* info) {
  if (!wanted(of == &handle && with == &parameters && fill == kUpper && type == kReal64 &&
              compute == kReal64 && workspace != nullptr && host_workspace != nullptr &&
              bytes >= FakeCuSolver::kBytes && host_bytes >= 8))
    return kInvalid;
  ++state.factored;
  if (state.fails_with != 0) return state.fails_with;
  auto* const a = static_cast<double*>(matrix);
  *info = 0;
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i <= j; ++i) {
      double sum = at(a, stride, i, j);
      for (std::int64_t k = 0; k < i; ++k) sum -= at(a, stride, k, i) * at(a, stride, k, j);
      if (i == j && !(sum > 0)) {
        *info = static_cast<int>(j + 1);
        return 0;
      }
      at(a, stride, i, j) = i == j ? std::sqrt(sum) : sum / at(a, stride, i, i);
    }
  return 0;
}

/// The inverse of U in its place.
int cusolverDnXtrtri(void* of, int fill, int diagonal, std::int64_t n, int type, void* matrix,
                     std::int64_t stride, void* workspace, std::size_t bytes, void* host_workspace,
                     std::size_t host_bytes, int* info) {
  if (!wanted(of == &handle && fill == kUpper && diagonal == kNotUnit && type == kReal64 &&
              workspace != nullptr && host_workspace != nullptr && bytes >= 8 &&
              host_bytes >= FakeCuSolver::kHostBytes))
    return kInvalid;
  ++state.inverted;
  auto* const a = static_cast<double*>(matrix);
  *info = 0;
  std::vector<double> column(static_cast<std::size_t>(n));
  for (std::int64_t j = n - 1; j >= 0; --j) {
    for (std::int64_t i = j; i >= 0; --i) {
      double sum = i == j ? 1 : 0;
      for (std::int64_t k = i + 1; k <= j; ++k)
        sum -= at(a, stride, i, k) * column[static_cast<std::size_t>(k)];
      if (at(a, stride, i, i) == 0) {
        *info = static_cast<int>(i + 1);
        return 0;
      }
      column[static_cast<std::size_t>(i)] = sum / at(a, stride, i, i);
    }
    for (std::int64_t i = 0; i <= j; ++i) at(a, stride, i, j) = column[static_cast<std::size_t>(i)];
  }
  return 0;
}

}  // extern "C"
