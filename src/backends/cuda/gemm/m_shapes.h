#pragma once

#include "nvfp4/host_device.h"

/// The numbers of rows of x for which a kernel has loops of its own. Host and device.
namespace nvfp4::cuda {

/// How many rows of x a tile can multiply: the least of these that is enough, in order, 0 behind
/// the last. Each is a loop of its own, and ptxas gives every one registers of its own: there is
/// room for 336 rows together, with three warpgroups for some 104, else it serializes the products.
struct MShapes {
  static constexpr int kMost = 4;
  int of[kMost];
  NVFP4_HD constexpr int operator[](int i) const { return of[i]; }
  NVFP4_HD constexpr int count() const {
    int n = 0;
    while (n < kMost && of[n] > 0) ++n;
    return n;
  }
  /// What is multiplied of a tile that has `rows`.
  NVFP4_HD constexpr int enough_for(int rows) const {
    int last = 0;
    for (int i = 0; i < kMost; ++i) {
      if (of[i] >= rows) return of[i];
      last = of[i] > 0 ? of[i] : last;
    }
    return last;
  }
  /// The rows of a group are shared out to as few tiles as there can be: so many to each, of as few
  /// that are multiplied as there can be, and to the last what is left.
  NVFP4_HD constexpr int rows_of_tile(int rows, int tiles) const {
    return of[1] == 0 ? of[0] : enough_for(1 + (rows - 1) / tiles);
  }
};

}  // namespace nvfp4::cuda
