#pragma once

#include "backends/cuda/device/block.cuh"

/// Copies rows through shared memory. The copies need no registers while they are in flight.
namespace nvfp4::cuda {

inline constexpr int kCopyBytes = 16;
inline constexpr int kChunk = 32;  ///< adjacent blocks that a warp holds, one for each lane

__device__ inline void copy_async(std::uint32_t shared, const char* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Chunks of a row that one warp copies and reads. Lanes copy adjacent pieces of 16 bytes; each
/// lane reads a block of several pieces. Pieces are permuted among eight, so that eight lanes read
/// all banks at once.
template <DType kType>
struct WarpStage {
  static constexpr int kPieces = 16 * kElementBytes<kType> / kCopyBytes;  // pieces of a block
  static constexpr int kBytes = kChunk * kPieces * kCopyBytes;            // bytes of a chunk

  char* memory;  ///< shared memory

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int permuted(int piece) { return piece ^ (piece / 8 % kPieces); }

  /// Copies piece 16·i + `piece` of a chunk. piece < 16, or piece < 32 with even i.
  __device__ void copy(int chunk, int i, int piece, const char* from) const {
    const int at = 16 * i + (permuted(piece) ^ (2 * i & (kPieces - 1)));  // permuted(16·i + piece)
    copy_async(static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)) +
                   static_cast<std::uint32_t>(at * kCopyBytes + chunk * kBytes),
               from);
  }
  __device__ Block<kType> block(int chunk) const {
    Block<kType> b;
#pragma unroll
    for (int h = 0; h < kPieces; ++h) {
      const uint4 v = *reinterpret_cast<const uint4*>(
          memory + permuted(lane() * kPieces + h) * kCopyBytes + chunk * kBytes);
      b.words[4 * h] = v.x;
      b.words[4 * h + 1] = v.y;
      b.words[4 * h + 2] = v.z;
      b.words[4 * h + 3] = v.w;
    }
    return b;
  }
  /// Zeroes the stage, for pieces that are never copied.
  __device__ void clear(int chunks) const {
    for (int i = lane(); i < chunks * kBytes / kCopyBytes; i += 32)
      reinterpret_cast<uint4*>(memory)[i] = {0, 0, 0, 0};
  }
};

/// Returns the sums of two blocks' elements, rounded to their type.
template <DType kType>
__device__ inline Block<kType> rounded_sum(const Block<kType>& a, const Block<kType>& b) {
  Block<kType> sum;
#pragma unroll
  for (int i = 0; i < Block<kType>::kWords; ++i) {
    if constexpr (kType == DType::f32) {
      sum.words[i] = __float_as_uint(a.value(i) + b.value(i));
    } else {
      const float low = a.value(2 * i) + b.value(2 * i);
      const float high = a.value(2 * i + 1) + b.value(2 * i + 1);
      if constexpr (kType == DType::bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(sum.words[i]) : "f"(high), "f"(low));
      else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(sum.words[i]) : "f"(high), "f"(low));
    }
  }
  return sum;
}

/// Stores a block. `p` must be aligned to 16 bytes.
template <DType kType>
__device__ inline void store_block(const Block<kType>& b, char* p) {
#pragma unroll
  for (int i = 0; i < Block<kType>::kWords; i += 4)
    reinterpret_cast<uint4*>(p)[i / 4] = {b.words[i], b.words[i + 1], b.words[i + 2],
                                          b.words[i + 3]};
}

}  // namespace nvfp4::cuda
