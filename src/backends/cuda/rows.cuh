#pragma once

#include "backends/cuda/device/block.cuh"
#include "backends/cuda/device/globals.cuh"
#include "backends/cuda/device/search.cuh"
#include "backends/cuda/row_args.h"
#include "quantizers/row_math.h"

/// The fused operations: a thread block makes a row, in registers, and quantizes or stores it. A
/// thread holds kBlocks consecutive blocks of 16. Device code only.
namespace nvfp4::cuda {

/// Reductions over the row. Each has two buffers, so that one barrier for each is enough: whoever
/// writes a buffer again has passed the other's barrier since it was read.
struct RowReduction {
  float (*buffers)[32];
  int turn = 0;

  template <class Combine>
  __device__ float operator()(float v, Combine combine) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) v = combine(v, __shfl_xor_sync(~0u, v, step));
    if (blockDim.x == 32) return v;
    float* shared = buffers[turn];
    turn ^= 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = lane < static_cast<int>(blockDim.x) / 32 ? shared[lane] : 0.0f;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) v = combine(v, __shfl_xor_sync(~0u, v, step));
    return v;
  }
};

/// The balanced binary tree over `count` values, neighbours first; overwrites them.
template <int kCount>
__device__ inline float tree_sum(float (&v)[kCount]) {
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i < kCount; i += 2 * step) v[i] = v[i] + v[i + step];
  return v[0];
}

__device__ inline float load_any(const MatrixView& m, std::int64_t i) {
  if (m.dtype == DType::f32) return load_element<DType::f32>(m.data, i);
  return m.dtype == DType::bf16 ? load_element<DType::bf16>(m.data, i)
                                : load_element<DType::f16>(m.data, i);
}

__device__ inline float rounded_to(DType type, float v) {
  if (type == DType::f32) return v;
  if (type == DType::bf16) return BF16{BF16::from_float(v).bits}.to_float();
  return __half2float(__float2half_rn(v));
}

/// Threads in a block at most: what is left of the registers decides.
template <int kBlocks>
inline constexpr int kMostThreads = kBlocks <= 4 ? 512 : 1024;
/// Thread blocks that must fit a multiprocessor, so that one computes while another waits.
template <RowKind kKind, int kBlocks>
inline constexpr int kLeastResident = kBlocks == 1 && kKind != RowKind::swiglu ? 2 : 1;
/// Long rows are rare: their values live in local memory, and their code stays small.
template <int kBlocks>
inline constexpr int kUnrolled = kBlocks <= 4 ? kBlocks : 1;

/// What a thread reads of a row before it waits for anything.
template <RowKind kKind, DType kType, int kBlocks>
struct RowInput {
  static constexpr int kOperands = kKind == RowKind::swiglu ? 2 : 1;
  Block<kType> x[kBlocks][kOperands];

  __device__ void load(const RowArgs& a, std::int64_t row, std::int64_t block) {
    const char* data = static_cast<const char*>(a.rows.x.data);
    const std::int64_t start = row * a.rows.x.stride;
    const auto at = [&](std::int64_t column) {
      return data + (start + column) * kElementBytes<kType>;
    };
    const bool aligned = is_aligned<kType>(a.rows.x);
#pragma unroll kUnrolled < kBlocks>
    for (int j = 0; j < kBlocks; ++j) {
      if (block + j >= a.blocks) break;
      const std::int64_t k = (block + j) * 16;
      if constexpr (kKind == RowKind::plain) {
        x[j][0] = load_block<kType>(at(k), aligned);
      } else if constexpr (kKind == RowKind::swiglu) {
        const std::int64_t group = a.rows.swiglu.interleave;
        if (group == 0) {
          x[j][0] = load_block<kType>(at(k), aligned);
          x[j][1] = load_block<kType>(at(a.rows.cols + k), aligned && a.rows.cols % 8 == 0);
        } else if (group >= 8) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const std::int64_t gate = (k + 8 * h) / group * 2 * group + (k + 8 * h) % group;
            load_half(x[j][0], h, at(gate), aligned);
            load_half(x[j][1], h, at(gate + group), aligned);
          }
        } else {
          load_scattered(a, start, k, group, x[j]);
        }
      }
    }
  }

  /// Groups of 1, 2 or 4 columns.
  __device__ static void load_scattered(const RowArgs& a, std::int64_t start, std::int64_t k,
                                        std::int64_t group, Block<kType> (&to)[kOperands]) {
#pragma unroll
    for (int o = 0; o < kOperands; ++o)
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const std::int64_t at = start + (k + i) / group * 2 * group + (k + i) % group + o * group;
        if constexpr (kType == DType::f32) {
          to[o].words[i] = __ldg(static_cast<const std::uint32_t*>(a.rows.x.data) + at);
        } else {
          const std::uint32_t bits = __ldg(static_cast<const std::uint16_t*>(a.rows.x.data) + at);
          to[o].words[i / 2] = i % 2 ? to[o].words[i / 2] | bits << 16 : bits;
        }
      }
  }
};

/// Which group `row` is in, if any: the groups are in order.
__device__ inline bool in_a_group(const RowGroups& groups, std::int64_t row) {
  if (groups.count == 0) return true;
  std::int64_t low = 0, high = groups.count;  // the first group that ends after the row
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (__ldg(groups.ends + middle) > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low < groups.count && __ldg(groups.starts + low) <= row;
}

__device__ inline std::int64_t load_index(const void* data, IndexType type, std::int64_t i) {
  switch (type) {
    case IndexType::i8:
      return static_cast<const std::int8_t*>(data)[i];
    case IndexType::u8:
      return static_cast<const std::uint8_t*>(data)[i];
    case IndexType::i16:
      return static_cast<const std::int16_t*>(data)[i];
    case IndexType::u16:
      return static_cast<const std::uint16_t*>(data)[i];
    case IndexType::i32:
      return static_cast<const std::int32_t*>(data)[i];
    case IndexType::u32:
      return static_cast<const std::uint32_t*>(data)[i];
    default:
      return static_cast<const std::int64_t*>(data)[i];
  }
}

__device__ inline void stage_routing(const Routing& from, const StagedRouting& to,
                                     std::int64_t row) {
  for (std::int64_t t = threadIdx.x; t < from.top_k; t += blockDim.x) {
    to.ids[row * to.id_stride + t] = load_index(from.ids, from.id_type, row * from.id_stride + t);
    to.weights[row * to.weight_stride + t] = from.weights[row * from.weight_stride + t];
  }
}

/// Any quantizer but max; out of line, for it would crowd the registers of every kernel.
template <int kBlockSize>
__device__ __noinline__ std::uint32_t choose_searched(Quantizer quantizer, const float* x,
                                                      float amax, float divisor) {
  return choose_code<kBlockSize>(quantizer, x, amax, divisor, nullptr);
}

template <int kBlocks>
__device__ inline void encode_row(const RowArgs& a, std::int64_t row, std::int64_t block,
                                  const float (&v)[16 * kBlocks], const float (&amax)[kBlocks],
                                  const bool (&has_nan)[kBlocks], const GlobalScale& global) {
  const QuantizedShape& s = a.out.shape;
  const std::int64_t scale_blocks = s.blocks();
#pragma unroll kUnrolled < kBlocks>
  for (int j = 0; j < kBlocks; ++j) {
    if (block + j >= a.blocks) break;
    std::uint32_t code;
    if (a.quantizer == Quantizer::max) {
      code = choose_code<16>(Quantizer::max, nullptr, amax[j], global.divisor, nullptr);
    } else if (s.block == 16) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = v[16 * j + i];
      code = choose_searched<16>(a.quantizer, x, amax[j], global.divisor);
    } else if constexpr (kBlocks % 2 == 0) {
      constexpr int kPair = 2;
      float x[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) x[i] = v[16 * (j / kPair * kPair) + i];
      code = choose_searched<32>(a.quantizer, x, fmaxf(amax[j / kPair * kPair], amax[j | 1]),
                                 global.divisor);
    } else {
      code = 0;  // the launcher gives blocks of 32 two blocks of 16 a thread
    }
    const float factor = fminf(1.0f / (e4m3_value(code) * (1.0f / global.divisor)), FLT_MAX);
    reinterpret_cast<uint2*>(a.out.codes)[row * a.blocks + block + j] =
        encode16(v + 16 * j, factor, has_nan[j]);
    const std::int64_t scale_block = s.block == 16 ? block + j : (block + j) / 2;
    if (s.block == 16 || j % 2 == 0)
      a.out.scales[scale_offset_of(s.layout, row, scale_block, s.rows, scale_blocks)] =
          static_cast<std::uint8_t>(code);
  }
}

__device__ inline void clear_row(const RowArgs& a, std::int64_t row) {
  const QuantizedShape& s = a.out.shape;
  for (std::int64_t b = threadIdx.x; b < a.blocks; b += blockDim.x)
    reinterpret_cast<uint2*>(a.out.codes)[row * a.blocks + b] = {0, 0};
  for (std::int64_t b = threadIdx.x; b < s.blocks(); b += blockDim.x)
    a.out.scales[scale_offset_of(s.layout, row, b, s.rows, s.blocks())] = 0;
  if (s.scope == GlobalScope::vector && threadIdx.x == 0) a.out.global_scale[row] = 1.0f;
}

template <RowKind kKind, DType kType, int kBlocks>
__global__ void __launch_bounds__(kMostThreads<kBlocks>, kLeastResident<kKind, kBlocks>)
    rows_kernel(const RowArgs a) {
  constexpr int kValues = 16 * kBlocks;
  constexpr bool kKeepWeights = kBlocks == 1 && kKind != RowKind::swiglu;
  __shared__ float buffers[2][32];
  RowReduction reduce{buffers};
  const auto largest = [](float x, float y) { return fmaxf(x, y); };
  const auto sum = [](float x, float y) { return x + y; };
  const std::int64_t block = std::int64_t{threadIdx.x} * kBlocks;
  const bool normalizes = a.rows.normalizes();
  const std::int64_t rows = a.rows.x.rows;

  float weights[kKeepWeights ? 16 : 1];
  if constexpr (kKeepWeights) {
    if (normalizes && block < a.blocks)
#pragma unroll
      for (int i = 0; i < 16; ++i) weights[i] = __ldg(a.rows.weight + block * 16 + i);
  }
  RowInput<kKind, kType, kBlocks> input;
  float tensor_amax = 0;
  if (blockIdx.x < rows) input.load(a, blockIdx.x, block);

  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    RowInput<kKind, kType, kBlocks> next;
    if (kBlocks == 1 && row + gridDim.x < rows) next.load(a, row + gridDim.x, block);
    if (a.routing.top_k > 0) stage_routing(a.routing, a.staged, row);
    const bool counts = in_a_group(a.groups, row);

    float v[kValues];
#pragma unroll kUnrolled < kBlocks>
    for (int j = 0; j < kBlocks; ++j) {
      const std::int64_t k = (block + j) * 16;
      const bool inside = block + j < a.blocks;
      if constexpr (kKind == RowKind::plain) {
#pragma unroll
        for (int i = 0; i < 16; ++i) v[16 * j + i] = inside ? input.x[j][0].value(i) : 0.0f;
        if (inside && a.rows.norm.residual.data != nullptr) {
          const MatrixView& residual = a.rows.norm.residual;
          const MatrixSpan& updated = a.rows.norm.residual_out;
#pragma unroll
          for (int i = 0; i < 16; ++i)
            v[16 * j + i] = rounded_to(
                updated.dtype, v[16 * j + i] + load_any(residual, row * residual.stride + k + i));
          store_values(updated.data, updated.dtype, row * updated.stride + k, v + 16 * j);
        }
      } else if constexpr (kKind == RowKind::swiglu) {
#pragma unroll
        for (int i = 0; i < 16; ++i)
          v[16 * j + i] =
              inside ? swiglu(input.x[j][0].value(i), input.x[j][kKind == RowKind::swiglu].value(i),
                              a.rows.swiglu.limit)
                     : 0.0f;
      } else {
#pragma unroll
        for (int i = 0; i < 16; ++i) v[16 * j + i] = 0.0f;
        if (inside) {
          const float* mix = static_cast<const float*>(a.rows.mix.data) + row * a.rows.mix.stride;
          const bool aligned = is_aligned<kType>(a.rows.x) && a.rows.cols % 8 == 0;
#pragma unroll
          for (int h = 0; h < kMostStreams; ++h) {
            if (h >= a.rows.streams) break;
            const float weight = __ldg(mix + h);
            const Block<kType> x = load_block<kType>(
                static_cast<const char*>(a.rows.x.data) +
                    (row * a.rows.x.stride + h * a.rows.cols + k) * kElementBytes<kType>,
                aligned);
#pragma unroll
            for (int i = 0; i < 16; ++i)
              v[16 * j + i] = h == 0 ? weight * x.value(i) : v[16 * j + i] + weight * x.value(i);
          }
        }
      }
    }

    if (normalizes) {
      float sums[kBlocks];
#pragma unroll kUnrolled < kBlocks>
      for (int j = 0; j < kBlocks; ++j) {
        float squares[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) squares[i] = v[16 * j + i] * v[16 * j + i];
        sums[j] = tree_sum(squares);
      }
      const float rstd = reciprocal_rms(reduce(tree_sum(sums), sum), a.rows.cols, a.rows.norm.eps);
      if (a.rows.norm.rstd != nullptr && threadIdx.x == 0) a.rows.norm.rstd[row] = rstd;
#pragma unroll kUnrolled < kBlocks>
      for (int j = 0; j < kBlocks; ++j)
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          float weight = 0;
          if constexpr (kKeepWeights)
            weight = weights[i];
          else if (block + j < a.blocks)
            weight = __ldg(a.rows.weight + (block + j) * 16 + i);
          float& value = v[16 * j + i];
          value = block + j < a.blocks ? normalized(value, rstd, weight) : 0.0f;
          if (a.rows.norm.intermediate != DType::f32)
            value = rounded_to(a.rows.norm.intermediate, value);
        }
    }

    if (a.mode == RowMode::store) {
#pragma unroll kUnrolled < kBlocks>
      for (int j = 0; j < kBlocks; ++j)
        if (block + j < a.blocks)
          store_values(a.y.data, a.y.dtype, row * a.y.stride + (block + j) * 16, v + 16 * j);
    } else {
      float amax[kBlocks];
      bool has_nan[kBlocks];
      float thread_amax = 0;
#pragma unroll kUnrolled < kBlocks>
      for (int j = 0; j < kBlocks; ++j) {
        std::uint32_t bits = 0;
        amax[j] = 0;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          amax[j] = fmaxf(amax[j], fabsf(v[16 * j + i]));
          bits = max(bits, __float_as_uint(v[16 * j + i]) & 0x7FFFFFFFu);
        }
        has_nan[j] = bits > 0x7F800000u;
        thread_amax = fmaxf(thread_amax, amax[j]);
      }
      if (a.mode == RowMode::amax) {
        if (counts) tensor_amax = fmaxf(tensor_amax, thread_amax);
      } else if (!counts) {
        clear_row(a, row);
      } else {
        const GlobalScale global = a.measure
                                       ? global_scale_for(reduce(thread_amax, largest), a.quantizer)
                                       : a.globals.of(row);
        encode_row<kBlocks>(a, row, block, v, amax, has_nan, global);
        if (a.write_globals && threadIdx.x == 0 && a.out.shape.scope == GlobalScope::vector)
          a.out.global_scale[row] = global.multiplier;
      }
      if (a.write_globals && threadIdx.x == 0 && row == 0 && a.mode == RowMode::quantize &&
          a.out.shape.scope == GlobalScope::tensor)
        a.out.global_scale[0] = a.globals.of(0).multiplier;
    }
    if constexpr (kBlocks == 1)
      input = next;
    else if (row + gridDim.x < rows)
      input.load(a, row + gridDim.x, block);
  }
  if (a.mode == RowMode::amax) {
    const unsigned m = __reduce_max_sync(~0u, __float_as_uint(tensor_amax));
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(a.out.global_scale), m);
  }
}

}  // namespace nvfp4::cuda
