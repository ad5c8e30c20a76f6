// Mixture of experts: sorts rows by expert, gathers and combines them.
#include "backends/cuda/dependent_launch.cuh"
#include "backends/cuda/device/routing.cuh"
#include "backends/cuda/launchers.h"
#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kPairs = kDispatchPairs;  ///< pairs of a thread block, one for each thread
static_assert(kMostExperts == kPairs, "a thread counts the pairs of an expert");

struct DispatchArgs {
  Routing routing;
  int pairs, top_k, experts;
  std::int32_t *row_ends, *row_of, *token_of, *expert_of, *counts;
};

/// Returns the expert of a pair, or -1 if the id names none.
__device__ int expert_of(const DispatchArgs& a, int pair) {
  if (pair >= a.pairs) return -1;
  const int token = pair / a.top_k;
  return expert_at(a.routing, token, pair - token * a.top_k, a.experts);
}

/// Returns rows[expert] plus the number of earlier pairs of the block with this expert. Warps run
/// in order. Adds the block's pairs to rows[expert].
__device__ int take_row(int* rows, int expert, int warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned same = __match_any_sync(~0u, expert);
  const int before = __popc(same & ((1u << lane) - 1));
  int row = -1;
  for (int w = 0; w < warps; ++w) {
    if (w == warp) {
      if (expert >= 0) row = rows[expert] + before;
      __syncwarp();
      if (expert >= 0 && before == 0) rows[expert] += __popc(same);
    }
    __syncthreads();
  }
  return row;
}

/// Returns the sum of the values of this thread and of all threads before it, of kPairs threads.
__device__ int sum_up_to_here(int value, int* warp_sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto scan = [lane](int v) {
    for (int by = 1; by < 32; by *= 2) {
      const int before = __shfl_up_sync(~0u, v, by);
      if (lane >= by) v += before;
    }
    return v;
  };
  value = scan(value);
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  if (warp == 0) warp_sums[lane] = scan(warp_sums[lane]);
  __syncthreads();
  return warp == 0 ? value : value + warp_sums[warp - 1];
}

/// Stores the maps between a pair and its row. `rows` is the total of all experts. No two threads
/// write the same element.
__device__ void place(const DispatchArgs& a, int pair, int expert, int row, int rows) {
  if (pair >= a.pairs) return;
  a.row_of[pair] = expert < 0 ? -1 : row;
  if (expert >= 0) {
    a.token_of[row] = pair / a.top_k;
    a.expert_of[row] = expert;
  }
  if (pair >= rows) {  // here `pair` is a row number
    a.token_of[pair] = -1;
    a.expert_of[pair] = 0;
  }
}

/// Sorts up to kPairs pairs in one block.
__global__ void __launch_bounds__(kPairs) dispatch_few_kernel(const DispatchArgs a) {
  __shared__ int starts[kPairs], warp_sums[32], rows;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  const int expert = expert_of(a, thread);
  starts[thread] = 0;
  __syncthreads();
  if (expert >= 0) atomicAdd(&starts[expert], 1);
  __syncthreads();
  const int count = starts[thread];
  const int end = sum_up_to_here(count, warp_sums);
  starts[thread] = end - count;
  if (thread < a.experts) a.row_ends[thread] = end;
  if (thread == kPairs - 1) rows = end;
  __syncthreads();
  const int row = take_row(starts, expert, (a.pairs + 31) / 32);
  place(a, thread, expert, row, rows);
}

/// Computes counts[block][expert]: the number of pairs of each block.
__global__ void __launch_bounds__(kPairs) count_kernel(const DispatchArgs a) {
  __shared__ int counts[kPairs];
  const int thread = static_cast<int>(threadIdx.x);
  counts[thread] = 0;
  __syncthreads();
  const int expert = expert_of(a, static_cast<int>(blockIdx.x) * kPairs + thread);
  if (expert >= 0) atomicAdd(&counts[expert], 1);
  __syncthreads();
  if (thread < a.experts) a.counts[std::int64_t{blockIdx.x} * a.experts + thread] = counts[thread];
}

/// Replaces counts[block][expert] by the first row of that block's pairs of that expert.
__global__ void __launch_bounds__(kPairs) start_kernel(const DispatchArgs a, int blocks) {
  __shared__ int warp_sums[32];
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_expert = thread < a.experts;
  int count = 0;
  for (int b = 0; is_expert && b < blocks; ++b)
    count += a.counts[std::int64_t{b} * a.experts + thread];
  const int end = sum_up_to_here(count, warp_sums);
  if (!is_expert) return;
  a.row_ends[thread] = end;
  int row = end - count;
  for (int b = 0; b < blocks; ++b) {
    std::int32_t& of_block = a.counts[std::int64_t{b} * a.experts + thread];
    const int pairs = of_block;
    of_block = row;
    row += pairs;
  }
}

__global__ void __launch_bounds__(kPairs) place_kernel(const DispatchArgs a) {
  __shared__ int starts[kPairs];
  const int thread = static_cast<int>(threadIdx.x);
  const int pair = static_cast<int>(blockIdx.x) * kPairs + thread;
  if (thread < a.experts) starts[thread] = a.counts[std::int64_t{blockIdx.x} * a.experts + thread];
  __syncthreads();
  const int expert = expert_of(a, pair);
  const int row = take_row(starts, expert, kPairs / 32);
  place(a, pair, expert, row, a.row_ends[a.experts - 1]);
}

constexpr int kThreads = 256;

/// Gathers rows. threadIdx.x runs along a row, threadIdx.y over rows.
template <class Word>
__global__ void __launch_bounds__(kThreads) gather_kernel(const GatherJob job, std::int64_t words) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= job.rows) return;
  const std::int64_t index = job.index != nullptr ? job.index[row]
                                                  : expert_at(job.routing, row / job.routing.top_k,
                                                              row % job.routing.top_k, job.experts);
  auto* const to = static_cast<Word*>(job.to) + row * words;
  if (index < 0) {
    for (std::int64_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = Word{};
    return;
  }
  const auto* const from =
      reinterpret_cast<const Word*>(static_cast<const char*>(job.from) + index * job.from_stride);
  for (std::int64_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}

/// Gathers by tokens: a thread loads a word of a token and stores it to all its rows.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const GatherJob job, std::int64_t words, unsigned pieces) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t token = std::int64_t{blockIdx.x / pieces} * blockDim.y + threadIdx.y;
  const std::int64_t i = std::int64_t{blockIdx.x % pieces} * blockDim.x + threadIdx.x;
  if (token * job.top_k >= job.rows || i >= words) return;
  const Word word = reinterpret_cast<const Word*>(static_cast<const char*>(job.from) +
                                                  token * job.from_stride)[i];
  auto* const to = static_cast<Word*>(job.to) + i;
#pragma unroll 8
  for (std::int64_t pair = token * job.top_k; pair < (token + 1) * job.top_k; ++pair) {
    const std::int64_t row = __ldg(job.row_of + pair);
    if (row >= 0) to[row * words] = word;
    if (__ldg(job.index + pair) < 0) to[pair * words] = Word{};
  }
}

template <class Word>
void launch_gather(const GatherJob& job) {
  const std::int64_t words = job.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  unsigned across = 1;
  while (across < words && across < kThreads) across *= 2;
  const dim3 threads(across, kThreads / across);
  if (job.row_of != nullptr) {
    const auto pieces = static_cast<unsigned>(ceil_div(words, across));
    const auto tokens = static_cast<unsigned>(ceil_div(job.rows / job.top_k, threads.y));
    return launch_dependent("gather_rows", {dim3(tokens * pieces), threads, stream_of(job.stream)},
                            scatter_kernel<Word>, job, words, pieces);
  }
  const auto blocks = static_cast<unsigned>(ceil_div(job.rows, threads.y));
  launch_dependent("gather_rows", {dim3(blocks), threads, stream_of(job.stream)},
                   gather_kernel<Word>, job, words);
}

constexpr int kCombineThreads = 128;
constexpr int kCombineCols = 8 * kCombineThreads;

template <DType kType>
__device__ void store_eight(const MatrixSpan& out, std::int64_t index, const float (&v)[8],
                            bool aligned) {
  using Value = std::conditional_t<kType == DType::f32, float, std::uint16_t>;
  alignas(16) Value values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if constexpr (kType == DType::f32)
      values[i] = v[i];
    else
      values[i] = kType == DType::bf16 ? BF16::from_float(v[i]).bits : FP16::from_float(v[i]).bits;
  auto* const to = static_cast<Value*>(out.data) + index;
  if (aligned) {
    // One 16-byte store; an assignment would be split into four.
#pragma unroll
    for (int i = 0; i < 8; i += 16 / sizeof(Value))
      __stwb(reinterpret_cast<uint4*>(to + i), *reinterpret_cast<const uint4*>(values + i));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = values[i];
  }
}

/// Eight values of a row in their stored type.
template <DType kType>
struct Eight {
  static constexpr int kBytes = dtype_size(kType), kWords = kBytes / 2;
  uint4 words[kWords];

  __device__ static Eight load(const void* rows, std::int64_t index) {
    Eight v;
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      v.words[i] =
          reinterpret_cast<const uint4*>(static_cast<const char*>(rows) + index * kBytes)[i];
    return v;
  }
  __device__ float operator[](int i) const {
    const auto* const w = reinterpret_cast<const std::uint32_t*>(words);
    if constexpr (kType == DType::f32) return __uint_as_float(w[i]);
    return __uint_as_float(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xFFFF0000u);
  }
};

/// Combines the rows of a token. A thread has 8 columns.
template <DType kType, DType kRowType>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const CombineJob job, unsigned pieces, bool aligned) {
  const std::int64_t token = blockIdx.x / pieces, cols = job.out.cols;
  const std::int64_t col =
      std::int64_t{blockIdx.x % pieces} * kCombineCols + std::int64_t{threadIdx.x} * 8;
  // Several rows are loaded at once.
  constexpr int kAtOnce = 8;
  std::int64_t rows[kAtOnce];
  float weights[kAtOnce];
  const auto find_rows = [&](std::int64_t k0) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t k = k0 + i, pair = token * job.routing.top_k + k;
      rows[i] = -1;
      if (k >= job.routing.top_k) continue;
      weights[i] = job.routing.weights[token * job.routing.weight_stride + k];
      if (job.row_of != nullptr)
        rows[i] = job.row_of[pair];
      else if (expert_at(job.routing, token, k, job.experts) >= 0)
        rows[i] = pair;
    }
  };
  // The routing and row_of are older than the previous kernel.
  find_rows(0);
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (col >= cols) return;
  float sum[8] = {};
  if (job.first.data != nullptr) {
    const auto first = Eight<DType::f32>::load(job.first.data, token * cols + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = first[i];
  }
  for (std::int64_t k0 = 0; k0 < job.routing.top_k; k0 += kAtOnce) {
    Eight<kRowType> v[kAtOnce];
    if (k0 > 0) find_rows(k0);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (rows[i] >= 0) v[i] = Eight<kRowType>::load(job.rows.data, rows[i] * cols + col);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (rows[i] < 0) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) sum[c] += weights[i] * v[i][c];
    }
  }
  store_eight<kType>(job.out, token * job.out.stride + col, sum, aligned);
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(const float4* other, float4* y, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float4 a = y[i], b = other[i];
  y[i] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__global__ void __launch_bounds__(kThreads)
    clear_kernel(const std::int32_t* first, float4* m, std::int64_t words) {
  const std::int64_t row = blockIdx.x;
  if (row < *first) return;
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) m[row * words + i] = {0, 0, 0, 0};
}

}  // namespace

void dispatch(const DispatchJob& job) {
  const std::int64_t pairs = job.routing.rows * job.routing.top_k;
  if (pairs == 0) return;
  const Current current(job.device);
  const cudaStream_t stream = stream_of(job.stream);
  const DispatchArgs a{.routing = job.routing,
                       .pairs = static_cast<int>(pairs),
                       .top_k = static_cast<int>(job.routing.top_k),
                       .experts = static_cast<int>(job.experts),
                       .row_ends = job.row_ends,
                       .row_of = job.row_of,
                       .token_of = job.token_of,
                       .expert_of = job.expert_of,
                       .counts = job.counts};
  const auto blocks = static_cast<unsigned>(ceil_div(pairs, kPairs));
  if (blocks == 1) {
    launch_dependent("dispatch", {dim3(1), dim3(kPairs), stream}, dispatch_few_kernel, a);
  } else {
    count_kernel<<<blocks, kPairs, 0, stream>>>(a);
    start_kernel<<<1, kPairs, 0, stream>>>(a, static_cast<int>(blocks));
    place_kernel<<<blocks, kPairs, 0, stream>>>(a);
  }
  check(cudaGetLastError(), "dispatch: kernel launch");
}

void gather_rows(const GatherJob& job) {
  if (job.rows == 0 || job.row_bytes == 0) return;
  const Current current(job.device);
  const auto fits = [&](std::int64_t bytes) {
    return job.row_bytes % bytes == 0 && job.from_stride % bytes == 0 &&
           reinterpret_cast<std::uintptr_t>(job.from) % static_cast<std::uintptr_t>(bytes) == 0 &&
           reinterpret_cast<std::uintptr_t>(job.to) % static_cast<std::uintptr_t>(bytes) == 0;
  };
  if (fits(16))
    launch_gather<uint4>(job);
  else if (fits(8))
    launch_gather<uint2>(job);
  else if (fits(4))
    launch_gather<std::uint32_t>(job);
  else if (fits(2))
    launch_gather<std::uint16_t>(job);
  else
    launch_gather<std::uint8_t>(job);
}

void combine_rows(const CombineJob& job) {
  const MatrixSpan& out = job.out;
  if (out.rows == 0 || out.cols == 0) return;
  const Current current(out.device);
  const bool aligned = out.stride * dtype_size(out.dtype) % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0;
  const auto pieces = static_cast<unsigned>(ceil_div(out.cols, kCombineCols));
  const auto blocks = static_cast<unsigned>(out.rows) * pieces;
  visit_dtype(out.dtype, [&](auto type) {
    const auto launch = [&](auto row_type) {
      launch_dependent("combine_rows", {dim3(blocks), dim3(kCombineThreads), stream_of(job.stream)},
                       combine_kernel<type.value, row_type.value>, job, pieces, aligned);
    };
    if (job.rows.dtype == DType::bf16)
      launch(std::integral_constant<DType, DType::bf16>{});
    else
      launch(std::integral_constant<DType, DType::f32>{});
  });
}

void add_rows(const MatrixView& other, const MatrixSpan& y, Stream stream) {
  const std::int64_t count = y.rows * y.cols / 4;
  if (count == 0) return;
  const Current current(y.device);
  add_kernel<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0, stream_of(stream)>>>(
      static_cast<const float4*>(other.data), static_cast<float4*>(y.data), count);
  check(cudaGetLastError(), "add_rows: kernel launch");
}

void clear_rows_from(const std::int32_t* first, const MatrixSpan& m, Stream stream) {
  if (m.rows == 0 || m.cols == 0) return;
  const Current current(m.device);
  clear_kernel<<<static_cast<unsigned>(m.rows), kThreads, 0, stream_of(stream)>>>(
      first, static_cast<float4*>(m.data), m.cols / 4);
  check(cudaGetLastError(), "clear_rows_from: kernel launch");
}

}  // namespace nvfp4::cuda
