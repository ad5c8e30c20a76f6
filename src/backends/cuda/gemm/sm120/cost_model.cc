#include "backends/cuda/gemm/sm120/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/cuda/gemm/sm80/cost_model.h"

namespace nvfp4::cuda::sm120 {

std::string why_none(const KernelProblem& p) {
  if (!p.quantized_x) return "are for NVFP4 by NVFP4 (W4A4)";
  if (p.k % kTileCols != 0)
    return fmt::format("are for K that is a multiple of {}, not {}", kTileCols, p.k);
  return "";
}

std::string why_impossible(const KernelProblem& p, const KernelConfig& t) {
  std::string reason = why_none(p);
  return reason.empty() ? sm80::why_impossible(p, kernel_of(t), t) : reason;
}

ChunkCycles chunk_cycles(const KernelConfig& t) {
  const Warps w = kernel_of(t).warps;
  // Instruction counts from the machine code: reorder a strip; load eight rows of x; multiply them
  // by each strip; overhead of a chunk.
  constexpr double kStrip = 165, kOctet = 2, kProduct = 1, kChunk = 35;
  const double strips = t.n / 16, octets = rows_of(t) / 8, warps = w.n;
  return {.tensor = strips * octets * (2.0 * 16 * 8 * 64 / 4096),
          .issue = (strips * kStrip + warps * octets * kOctet + strips * octets * kProduct +
                    warps * kChunk) /
                   4,
          // Every warp reads x, and its strips four times. All of it was written before.
          .shared =
              (warps * rows_of(t) * 36 + strips * (4 * 512 + 64) + rows_of(t) * 36 + strips * 576) /
              128};
}

double estimated_time(const KernelProblem& p, const KernelConfig& t) {
  constexpr double kCyclesAMicrosecond = 2400, kBytesAMicrosecond = 1.5e6 / 170;
  constexpr double kStart = 2.5, kTile = 1.0, kSplit = 1.5;
  const double multiprocessors = std::max(1, p.multiprocessors);
  const double tiles = sm80::expected_m_tiles(p, t) * static_cast<double>(ceil_div(p.n, t.n));
  const double chunks = static_cast<double>(ceil_div(p.k, kTileCols));
  // Several blocks on one multiprocessor share its throughput.
  const double rounds = std::ceil(tiles * t.split_k / multiprocessors);
  const double of_block = std::ceil(chunks / t.split_k);
  const double multiply = rounds * of_block * chunk_cycles(t).together() / kCyclesAMicrosecond;
  const double read =
      static_cast<double>(p.groups * p.n) * chunks * 36 / (multiprocessors * kBytesAMicrosecond);
  // Memory latency is one microsecond.
  const double stages = kernel_of(t).stages - 1;
  const double wait =
      rounds * std::ceil(of_block / kernel_of(t).warps.k) / (stages * kernel_of(t).blocks) * 1.0;
  return kStart + std::max({multiply, read, wait}) + rounds * kTile * (t.m * t.n) / (128 * 128) +
         (t.split_k > 1 ? kSplit : 0);
}

std::vector<KernelConfig> candidates(const KernelProblem& p) {
  return sm80::by_time(kKernels, p, why_impossible, estimated_time);
}

KernelConfig choose_kernel(const KernelProblem& p) { return candidates(p).front(); }

}  // namespace nvfp4::cuda::sm120
