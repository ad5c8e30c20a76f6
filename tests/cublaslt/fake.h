#pragma once

#include <cstddef>
#include <cstdint>

/// Settings and observations of the fake cuBLASLt.
struct FakeCublasLt {
  static constexpr std::uint64_t kAlgorithm = 1000;
  int handles = 0, heuristics = 0, products = 0;
  int alive = 0;   ///< descriptors that were not destroyed
  int faults = 0;  ///< 1: memory that could not be copied; 2: scales outside the matrix
  bool refuses = false;
  bool factors_on_device = false;  ///< of the last product
  bool fast = false;               ///< accumulation of the last product
  const void* bias = nullptr;      ///< of the last product
  std::uint64_t algorithm = 0;     ///< kAlgorithm + the number of the heuristic that chose it
  void* stream = nullptr;
};

/// The layout is that of cublasLtMatmulHeuristicResult_t.
struct FakeHeuristic {
  std::uint64_t algorithm[8];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
