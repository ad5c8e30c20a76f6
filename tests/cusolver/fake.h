#pragma once

#include <cstdint>

/// Settings and observations of the fake cuSOLVER.
struct FakeCuSolver {
  static constexpr std::int64_t kBytes = 4096,
                                kHostBytes = 512;  ///< of workspace, that it asks for
  int version = 12004;
  int handles = 0, factored = 0, inverted = 0;
  int faults = 0;  ///< arguments that NVIDIA's documentation does not want
  int fails_with = 0;
  void* stream = nullptr;
};
