#include <algorithm>

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/gptq.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kSide = 32;  ///< side of a transposed tile
constexpr int kHeight = 8;
constexpr int kThreads = 256;

/// Computes u = x · divisor, transposed. Lanes without a row are zeros.
template <DType kType>
__global__ void __launch_bounds__(kSide* kHeight)
    gptq_begin_kernel(const GptqLanes l, const MatrixView x, float divisor) {
  __shared__ float tile[kSide][kSide + 1];
  const std::int64_t k0 = std::int64_t{blockIdx.x} * kSide, r0 = std::int64_t{blockIdx.y} * kSide;
  const int i = static_cast<int>(threadIdx.x) % kSide, j0 = static_cast<int>(threadIdx.x) / kSide;
  for (int j = j0; j < kSide; j += kHeight)
    if (r0 + j < l.rows && k0 + i < l.depth)
      tile[j][i] = load_element<kType>(x.data, (r0 + j) * x.stride + k0 + i) * divisor;
  __syncthreads();
  for (int j = j0; j < kSide; j += kHeight)
    if (k0 + j < l.depth) l.u[(k0 + j) * l.lanes + r0 + i] = r0 + i < l.rows ? tile[i][j] : 0.0f;
}

/// Computes dequantized values (without the global scale) minus u. `keep_scales` also stores the
/// scales in l.scale, including lanes without a row.
__global__ void __launch_bounds__(kSide* kHeight)
    gptq_decode_kernel(const GptqLanes l, const std::uint8_t* codes, const std::uint8_t* scales,
                       bool keep_scales) {
  __shared__ float tile[kSide][kSide + 1];
  const std::int64_t k0 = std::int64_t{blockIdx.x} * kSide, r0 = std::int64_t{blockIdx.y} * kSide;
  const int i = static_cast<int>(threadIdx.x) % kSide, j0 = static_cast<int>(threadIdx.x) / kSide;
  for (int j = j0; j < kSide; j += kHeight) {
    const std::int64_t r = r0 + j, k = k0 + i;
    if (k >= l.depth) continue;
    std::uint8_t scale = 0, code = 0;
    if (r < l.rows) {
      scale = scales[(r * l.depth + k) / kBlock];
      code = static_cast<std::uint8_t>(codes[(r * l.depth + k) / 2] >> (k % 2 * 4) & 0xF);
    }
    tile[j][i] = E2M1{code}.to_float() * e4m3_value(scale);
    if (keep_scales && k % kBlock == 0) l.scale[k / kBlock * l.lanes + r] = scale;
  }
  __syncthreads();
  for (int j = j0; j < kSide; j += kHeight)
    if (k0 + j < l.depth) {
      const std::int64_t at = (k0 + j) * l.lanes + r0 + i;
      l.difference[at] = tile[i][j] - l.u[at];
    }
}

/// Copies u to l.gradient in the factor's order.
__global__ void __launch_bounds__(kThreads)
    gptq_order_kernel(const GptqLanes l, const std::int32_t* order) {
  const std::int64_t r = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const std::int64_t p = blockIdx.x;
  if (r < l.lanes) l.gradient[p * l.lanes + r] = l.u[order[p] * l.lanes + r];
}

__global__ void __launch_bounds__(kThreads) gptq_difference_kernel(const GptqLanes l) {
  const std::int64_t r = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const std::int64_t at = blockIdx.x * l.lanes + r;
  if (r < l.lanes) l.difference[at] = l.value[at] - l.u[at];
}

/// Computes output_error() of each row for candidate `number`.
__global__ void __launch_bounds__(kSide)
    gptq_error_kernel(const GptqLanes l, float damping, int number, double* errors) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kSide + threadIdx.x;
  double sum = 0;
#pragma unroll 16
  for (std::int64_t k = 0; k < l.depth; ++k) {
    const float d = l.difference[k * l.lanes + r];
    sum = sum + static_cast<double>(d) *
                    static_cast<double>(__fmaf_rn(-damping, d, l.gradient[k * l.lanes + r]));
  }
  if (r < l.rows) errors[r * kGptqCandidates + number] = sum;
}

/// Encodes l.value with the scales in l.scale.
__global__ void __launch_bounds__(kSide* kHeight)
    gptq_encode_kernel(const GptqLanes l, std::uint8_t* codes, std::uint8_t* scales) {
  __shared__ std::uint8_t tile[kSide][kSide + 1];
  const std::int64_t k0 = std::int64_t{blockIdx.x} * kSide, r0 = std::int64_t{blockIdx.y} * kSide;
  const int i = static_cast<int>(threadIdx.x) % kSide, j0 = static_cast<int>(threadIdx.x) / kSide;
  for (int j = j0; j < kSide; j += kHeight) {
    const std::int64_t r = r0 + i, k = k0 + j;
    if (k >= l.depth) continue;
    const std::uint8_t scale = l.scale[k / kBlock * l.lanes + r];
    const float reciprocal = 1.0f / e4m3_value(scale);
    tile[i][j] = E2M1::from_float(l.value[k * l.lanes + r] * reciprocal).bits;
    if (k % kBlock == 0 && r < l.rows) scales[(r * l.depth + k) / kBlock] = scale;
  }
  __syncthreads();
  for (int j = j0; j < kSide; j += kHeight)
    if (i % 2 == 0 && k0 + i < l.depth && r0 + j < l.rows)
      codes[((r0 + j) * l.depth + k0 + i) / 2] =
          static_cast<std::uint8_t>(tile[j][i] | tile[j][i + 1] << 4);
}

struct Packed {
  const std::uint8_t *codes, *scales;
};

/// Copies the candidate with the smallest error for each row. A thread block takes a row.
__global__ void __launch_bounds__(kThreads)
    gptq_choose_kernel(std::int64_t depth, const double* errors, Packed mse, Packed gptq,
                       Packed descent, Packed out, std::uint8_t* chosen) {
  const std::int64_t r = blockIdx.x;
  int best = 0;
  for (int c = 1; c < kGptqCandidates; ++c)
    if (errors[r * kGptqCandidates + c] < errors[r * kGptqCandidates + best]) best = c;
  if (threadIdx.x == 0) chosen[r] = static_cast<std::uint8_t>(best);
  if (best == static_cast<int>(GptqCandidate::weighted)) return;  // is in `out` already
  const Packed from = best == static_cast<int>(GptqCandidate::mse)    ? mse
                      : best == static_cast<int>(GptqCandidate::gptq) ? gptq
                                                                      : descent;
  auto* const codes = const_cast<std::uint8_t*>(out.codes);
  auto* const scales = const_cast<std::uint8_t*>(out.scales);
  for (std::int64_t i = threadIdx.x; i < depth / 2; i += kThreads)
    codes[r * (depth / 2) + i] = from.codes[r * (depth / 2) + i];
  for (std::int64_t i = threadIdx.x; i < depth / kBlock; i += kThreads)
    scales[r * (depth / kBlock) + i] = from.scales[r * (depth / kBlock) + i];
}

/// The partition of the workspace.
struct Workspace {
  GptqLanes lanes{};
  std::uint8_t *gptq_codes = nullptr, *gptq_scales = nullptr;
  std::uint8_t *descent_codes = nullptr, *descent_scales = nullptr;
  int* changed = nullptr;  ///< flags of a sweep and of the previous one
  std::int64_t bytes = 0;

  Workspace(std::int64_t rows, std::int64_t depth, void* memory) {
    lanes.depth = depth;
    lanes.rows = rows;
    lanes.lanes = round_up(rows, kGptqBatch);
    const auto take = [&]<class T>(T*& part, std::int64_t count) {
      if (memory != nullptr) part = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + bytes);
      bytes += round_up(count * static_cast<std::int64_t>(sizeof(T)), 256);
    };
    for (float** part : {&lanes.u, &lanes.difference, &lanes.gradient, &lanes.value})
      take(*part, depth * lanes.lanes);
    take(lanes.scale, depth / kBlock * lanes.lanes);
    for (std::uint8_t** part : {&gptq_codes, &descent_codes}) take(*part, rows * depth / 2);
    for (std::uint8_t** part : {&gptq_scales, &descent_scales}) take(*part, rows * depth / kBlock);
    take(changed, 2);
  }
};

class Run {
 public:
  explicit Run(const DeviceGptqJob& job)
      : job_(job),
        gram_(job.gram),
        work_(job.x.rows, job.gram.depth, job.workspace),
        l_(work_.lanes),
        stream_(stream_of(job.stream)) {}

  void operator()() {
    visit_dtype(job_.x.dtype, [&](auto type) {
      gptq_begin_kernel<type.value>
          <<<transposed(), kSide * kHeight, 0, stream_>>>(l_, job_.x, job_.divisor);
    });
    decode(job_.mse_codes, job_.mse_scales, GptqCandidate::mse);
    decode(job_.codes, job_.scales, GptqCandidate::weighted);
    forward();
    gptq_encode_kernel<<<transposed(), kSide * kHeight, 0, stream_>>>(l_, work_.gptq_codes,
                                                                      work_.gptq_scales);
    measure(GptqCandidate::gptq);
    descend();
    gptq_encode_kernel<<<transposed(), kSide * kHeight, 0, stream_>>>(l_, work_.descent_codes,
                                                                      work_.descent_scales);
    gptq_choose_kernel<<<static_cast<unsigned>(l_.rows), kThreads, 0, stream_>>>(
        l_.depth, job_.errors, {job_.mse_codes, job_.mse_scales},
        {work_.gptq_codes, work_.gptq_scales}, {work_.descent_codes, work_.descent_scales},
        {job_.codes, job_.scales}, job_.chosen);
    check(cudaGetLastError(), "gptq: kernel launch");
  }

 private:
  dim3 transposed() const {
    return {static_cast<unsigned>(ceil_div(l_.depth, kSide)),
            static_cast<unsigned>(l_.lanes / kSide)};
  }
  dim3 elementwise() const {
    return {static_cast<unsigned>(l_.depth), static_cast<unsigned>(ceil_div(l_.lanes, kThreads))};
  }

  void multiply(GptqProduct p) const {
    p.columns = l_.depth;
    p.lanes = l_.lanes;
    const auto tiles = ceil_div(l_.depth, kGptqBatch) - p.first_tile;
    if (tiles <= 0) return;
    const dim3 grid(static_cast<unsigned>(l_.lanes / kGptqBatch), static_cast<unsigned>(tiles));
    gptq_product_kernel<<<grid, gptq_product::kThreads, 0, stream_>>>(p);
  }

  void decode(const std::uint8_t* codes, const std::uint8_t* scales, GptqCandidate candidate) {
    gptq_decode_kernel<<<transposed(), kSide * kHeight, 0, stream_>>>(
        l_, codes, scales, candidate == GptqCandidate::weighted);
    find_error(candidate, true);
  }

  void measure(GptqCandidate candidate, bool multiplied = false) {
    gptq_difference_kernel<<<elementwise(), kThreads, 0, stream_>>>(l_);
    find_error(candidate, !multiplied);
  }

  /// Computes the error of l.difference. `product`: the gradient must be computed first.
  void find_error(GptqCandidate candidate, bool product) {
    if (product)
      multiply({.out = l_.gradient,
                .matrix = gram_.gram,
                .in = l_.difference,
                .columns = 0,
                .lanes = 0,
                .depth = static_cast<int>(l_.depth),
                .from_zero = true});
    gptq_error_kernel<<<static_cast<unsigned>(l_.lanes / kSide), kSide, 0, stream_>>>(
        l_, gram_.damping, static_cast<int>(candidate), job_.errors);
  }

  int batch_from(std::int64_t begin) const {
    return static_cast<int>(std::min<std::int64_t>(kGptqBatch, l_.depth - begin));
  }

  void forward() {
    gptq_order_kernel<<<elementwise(), kThreads, 0, stream_>>>(l_, gram_.order);
    for (std::int64_t begin = 0; begin < l_.depth; begin += kGptqBatch) {
      const int n = batch_from(begin);
      gptq_forward_kernel<<<static_cast<unsigned>(l_.lanes / kGptqRows), gptq_forward::kWarps * 32,
                            0, stream_>>>(l_, gram_, begin, n);
      multiply({.out = l_.gradient,
                .matrix = gram_.upper + begin * l_.depth,
                .in = l_.difference,
                .columns = 0,
                .lanes = 0,
                .depth = n,
                .first_tile = static_cast<int>(begin / kGptqBatch) + 1});
    }
  }

  void descend() {
    int* const changed = work_.changed;
    check(cudaMemsetAsync(changed, 1, 2 * sizeof(int), stream_), "cudaMemsetAsync");
    for (int sweep = 0; sweep < job_.sweeps; ++sweep) {
      int* const now = changed + sweep % 2;
      const int* const before = changed + (sweep + 1) % 2;
      check(cudaMemsetAsync(now, 0, sizeof(int), stream_), "cudaMemsetAsync");
      for (std::int64_t begin = 0; begin < l_.depth; begin += kGptqBatch) {
        const int n = batch_from(begin);
        gptq_descent_kernel<<<static_cast<unsigned>(l_.lanes / kGptqRows), kScaleNeighbours * 32, 0,
                              stream_>>>(l_, gram_, begin, n, before, now);
        multiply({.out = l_.gradient,
                  .matrix = gram_.gram + begin * l_.depth,
                  .in = l_.difference + begin * l_.lanes,
                  .columns = 0,
                  .lanes = 0,
                  .depth = n,
                  .skipped_tile = static_cast<int>(begin / kGptqBatch),
                  .wanted = before});
      }
    }
    measure(GptqCandidate::descent, true);
  }

  const DeviceGptqJob& job_;
  const DeviceGramFactor& gram_;
  const Workspace work_;
  const GptqLanes l_;
  const cudaStream_t stream_;
};

}  // namespace

std::int64_t gptq_workspace(std::int64_t rows, std::int64_t depth) {
  return Workspace(rows, depth, nullptr).bytes;
}

void gptq(const DeviceGptqJob& job) {
  if (job.x.rows == 0) return;
  const Current current(job.x.device);
  Run{job}();
}

}  // namespace nvfp4::cuda
