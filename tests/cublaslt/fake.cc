// A library with the functions of cuBLASLt that gemm/sm100 asks for, which multiplies on the CPU:
// what it is told is what NVIDIA's documentation wants, or it says so.
#include "cublaslt/fake.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "nvfp4/format.h"
#ifdef NVFP4_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace {

FakeCublasLt state;

struct Matrix {
  std::int32_t type;
  std::uint64_t rows, cols;
  std::int64_t stride;
};
struct Product {
  std::int32_t compute, scale;
  std::map<int, std::vector<unsigned char>> attributes;
  template <class T>
  bool has(int attribute, T value) const {
    const auto found = attributes.find(attribute);
    return found != attributes.end() && found->second.size() == sizeof value &&
           std::memcmp(found->second.data(), &value, sizeof value) == 0;
  }
  const unsigned char* pointer(int attribute) const {
    const unsigned char* p = nullptr;
    const auto found = attributes.find(attribute);
    if (found != attributes.end() && found->second.size() == sizeof p)
      std::memcpy(&p, found->second.data(), sizeof p);
    return p;
  }
};
constexpr int kInvalid = 7, kNotSupported = 15;

void copy(void* to, const void* from, std::size_t bytes) {
#ifdef NVFP4_WITH_CUDA
  if (cudaMemcpy(to, from, bytes, cudaMemcpyDefault) != cudaSuccess) state.faults |= 1;
#else
  std::memcpy(to, from, bytes);
#endif
}
std::vector<unsigned char> read(const void* from, std::size_t bytes) {
  std::vector<unsigned char> v(bytes);
  copy(v.data(), from, bytes);
  return v;
}

float e2m1(unsigned char byte, std::int64_t i) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const int code = byte >> (i % 2 * 4) & 15;
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}
float ue4m3(unsigned char bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  return exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                       : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}
/// "1D block scaling factors layout" of cuBLAS's documentation.
std::size_t scale_at(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return static_cast<std::size_t>(tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4);
}
float e4m3(unsigned char bits) { return bits & 128 ? -ue4m3(bits & 127) : ue4m3(bits); }
bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

struct Rows {
  std::int64_t n, m, k;
  const unsigned char *w, *x;
  void* out;
  std::int64_t w_stride, x_stride, out_stride;
  const unsigned char *w_factors, *x_factors;
  std::int32_t out_type;
};
/// Multiplies rows of E4M3 with a factor each, and adds the bias. out is BF16 or FP16.
int multiply_rows(const Rows& p) {
  if (p.out_type == 0) return kInvalid;
  const auto size = [](auto v) { return static_cast<std::size_t>(v); };
  const auto rounded = [&](float v) {
    return p.out_type == 14 ? nvfp4::BF16::from_float(v).bits : nvfp4::FP16::from_float(v).bits;
  };
  const auto w = read(p.w, size((p.n - 1) * p.w_stride + p.k)),
             x = read(p.x, size((p.m - 1) * p.x_stride + p.k));
  std::vector<float> w_factors(size(p.n)), x_factors(size(p.m));
  copy(w_factors.data(), p.w_factors, size(p.n) * 4);
  copy(x_factors.data(), p.x_factors, size(p.m) * 4);
  std::vector<std::uint16_t> bias(size(p.n)), row(size(p.n));
  if (state.bias != nullptr) copy(bias.data(), state.bias, size(p.n) * 2);
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l)
        sum += e4m3(w[size(j * p.w_stride + l)]) * e4m3(x[size(i * p.x_stride + l)]);
      const float b = p.out_type == 14 ? nvfp4::BF16{bias[size(j)]}.to_float()
                                       : nvfp4::FP16{bias[size(j)]}.to_float();
      row[size(j)] = rounded(static_cast<float>(sum) * x_factors[size(i)] * w_factors[size(j)] + b);
    }
    copy(static_cast<char*>(p.out) + i * p.out_stride * 2, row.data(), size(p.n) * 2);
  }
  return 0;
}

}  // namespace

extern "C" {

FakeCublasLt* fake_cublaslt() { return &state; }

std::size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusName(int status) {
  return status == kInvalid        ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                   : "CUBLAS_STATUS_INTERNAL_ERROR";
}
int cublasLtCreate(void** handle) {
  ++state.handles;
  *handle = &state;
  return 0;
}
int cublasLtMatmulDescCreate(void** to, std::int32_t compute, std::int32_t scale) {
  *to = new Product{compute, scale, {}};
  ++state.alive;
  return 0;
}
int cublasLtMatmulDescDestroy(void* p) {
  delete static_cast<Product*>(p);
  --state.alive;
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* p, int attribute, const void* value, std::size_t bytes) {
  const auto* const from = static_cast<const unsigned char*>(value);
  static_cast<Product*>(p)->attributes[attribute] = {from, from + bytes};
  return 0;
}
int cublasLtMatrixLayoutCreate(void** to, std::int32_t type, std::uint64_t rows, std::uint64_t cols,
                               std::int64_t stride) {
  *to = new Matrix{type, rows, cols, stride};
  ++state.alive;
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* p) {
  delete static_cast<Matrix*>(p);
  --state.alive;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** to) {
  *to = new std::size_t{0};
  ++state.alive;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* p) {
  delete static_cast<std::size_t*>(p);
  --state.alive;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* p, int attribute, const void* value,
                                         std::size_t bytes) {
  std::uint32_t sixteen = 0;
  if (bytes == 4) std::memcpy(&sixteen, value, bytes);
  if ((attribute == 7 || attribute == 8) && sixteen == 16) return 0;
  if (attribute != 1 || bytes != 8) return kInvalid;
  std::memcpy(p, value, bytes);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference,
                                   int wanted, FakeHeuristic* found, int* count) {
  ++state.heuristics;
  if (state.refuses) return kNotSupported;
  if (wanted < 2 || *static_cast<std::size_t*>(preference) == 0) return kInvalid;
  found[0] = found[1] = {};
  found[0].state = kNotSupported;  // it may be in the list
  found[1].algorithm[0] = FakeCublasLt::kAlgorithm + static_cast<std::uint64_t>(state.heuristics);
  *count = 2;
  return 0;
}
int cublasLtMatmul(void* handle, void* of, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* d, void* d_layout, const void* algorithm, void* workspace,
                   std::size_t workspace_bytes, void* stream) {
  ++state.products;
  const auto& p = *static_cast<Product*>(of);
  const auto &w = *static_cast<Matrix*>(a_layout), &x = *static_cast<Matrix*>(b_layout),
             &out = *static_cast<Matrix*>(d_layout);
  std::memcpy(&state.algorithm, algorithm, sizeof state.algorithm);
  state.stream = stream;
  const unsigned char *w_scales = p.pointer(17), *x_scales = p.pointer(18);
  constexpr std::int32_t kOne = 1;
  constexpr std::size_t kSizes[] = {4, 0, 2, 0, 0, 0, 0, 0,
                                    0, 0, 0, 0, 0, 0, 2};  // of cudaDataType
  const std::size_t size_out = out.type >= 0 && out.type < 15 ? kSizes[out.type] : 0;
  float factors[2] = {};
  state.factors_on_device = p.has(2, kOne);
  if (state.factors_on_device)
    copy(factors, alpha, sizeof factors[0]), copy(factors + 1, beta, sizeof factors[1]);
  else
    factors[0] = *static_cast<const float*>(alpha), factors[1] = *static_cast<const float*>(beta);
  // Aᵀ · B of E2M1, an E4M3 for 16, or of E4M3, an FP32 for each row; sizes of 16 bytes.
  const bool fp8 = w.type == 28;
  const std::int32_t mode = fp8 ? 3 : 1;
  const std::uint64_t sixteen_bytes = fp8 ? 16 : 32;
  if (handle != &state || p.compute != 68 || p.scale != 0 || !p.has(3, kOne) || p.has(4, kOne) ||
      !p.has(31, mode) || !p.has(32, mode) || (w.type != 33 && !fp8) || x.type != w.type ||
      size_out == 0 || w.rows != x.rows || w.cols != out.rows || x.cols != out.cols ||
      w.rows % sixteen_bytes != 0 || w.stride % static_cast<std::int64_t>(sixteen_bytes) != 0 ||
      x.stride % static_cast<std::int64_t>(sixteen_bytes) != 0 ||
      out.stride * static_cast<std::int64_t>(size_out) % 16 != 0 || !aligned(a) || !aligned(b) ||
      !aligned(d) || !aligned(w_scales) || !aligned(x_scales) || c != d || c_layout != d_layout ||
      factors[1] != 0 || workspace == nullptr || workspace_bytes == 0)
    return kInvalid;
  const auto n = static_cast<std::int64_t>(w.cols), m = static_cast<std::int64_t>(x.cols),
             k = static_cast<std::int64_t>(w.rows), blocks = k / 16;
#ifdef NVFP4_WITH_CUDA
  if (cudaDeviceSynchronize() != cudaSuccess) return kInvalid;
#endif
  const auto size = [](auto v) { return static_cast<std::size_t>(v); };
  state.fast = p.has(25, std::int8_t{1});
  state.bias = p.has(7, std::uint32_t{4}) && p.has(26, out.type) ? p.pointer(8) : nullptr;
  if (fp8)
    return multiply_rows({.n = n,
                          .m = m,
                          .k = k,
                          .w = static_cast<const unsigned char*>(a),
                          .x = static_cast<const unsigned char*>(b),
                          .out = d,
                          .w_stride = w.stride,
                          .x_stride = x.stride,
                          .out_stride = out.stride,
                          .w_factors = w_scales,
                          .x_factors = x_scales,
                          .out_type = out.type});
  const auto scale_bytes = [&](std::int64_t rows) {
    return size((rows + 127) / 128 * ((blocks + 3) / 4) * 512);
  };
  const auto wv = read(a, size((n - 1) * w.stride / 2 + k / 2)),
             xv = read(b, size((m - 1) * x.stride / 2 + k / 2)),
             ws = read(w_scales, scale_bytes(n)), xs = read(x_scales, scale_bytes(m));
  // Memory behind a row of out must not change.
  std::vector<unsigned char> sums = read(d, size((m - 1) * out.stride + n) * size_out);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t block = 0; block < blocks; ++block) {
        double dot = 0;
        for (std::int64_t l = block * 16; l < block * 16 + 16; ++l)
          dot +=
              e2m1(wv[size((j * w.stride + l) / 2)], l) * e2m1(xv[size((i * x.stride + l) / 2)], l);
        sum += dot * ue4m3(ws[scale_at(j, block, blocks)]) * ue4m3(xs[scale_at(i, block, blocks)]);
      }
      const float value = factors[0] * static_cast<float>(sum);
      const std::uint16_t half = out.type == 14 ? nvfp4::BF16::from_float(value).bits
                                                : nvfp4::FP16::from_float(value).bits;
      std::memcpy(sums.data() + size(i * out.stride + j) * size_out,
                  size_out == 4 ? static_cast<const void*>(&value) : &half, size_out);
    }
  copy(d, sums.data(), sums.size());
  // Padding of a matrix in its tiles must be zero.
  for (const auto* s : {&ws, &xs}) {
    const std::int64_t rows = s == &ws ? n : m;
    for (std::int64_t row = 0; row < (rows + 127) / 128 * 128; ++row)
      for (std::int64_t block = 0; block < (blocks + 3) / 4 * 4; ++block)
        if ((row >= rows || block >= blocks) &&
            (*s)[scale_at(row, block, (blocks + 3) / 4 * 4)] != 0)
          state.faults |= 2;
  }
  return 0;
}

}  // extern "C"
