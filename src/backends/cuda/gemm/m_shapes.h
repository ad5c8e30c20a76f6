#pragma once

#include "nvfp4/host_device.h"

/// The values of M for which a kernel has a mainloop. Host and device.
namespace nvfp4::cuda {

/// The values of M that a kernel can multiply, ascending; zeros follow the last. A tile uses the
/// smallest value that covers its rows. ptxas allocates registers for each mainloop separately. The
/// values may sum to 336, with three warpgroups to about 104; beyond that ptxas serializes wgmma.
struct MShapes {
  static constexpr int kMost = 4;
  int of[kMost] = {};
  NVFP4_HD constexpr int operator[](int i) const { return of[i]; }
  NVFP4_HD constexpr int count() const {
    int n = 0;
    while (n < kMost && of[n] > 0) ++n;
    return n;
  }
  /// Returns the M that is multiplied for a tile of `rows` rows.
  NVFP4_HD constexpr int enough_for(int rows) const {
    int last = 0;
    for (int i = 0; i < kMost; ++i) {
      if (of[i] >= rows) return of[i];
      last = of[i] > 0 ? of[i] : last;
    }
    return last;
  }
  /// Returns the rows of each tile of a group. All tiles but the last have equally many, and the
  /// smallest M that covers them is used.
  NVFP4_HD constexpr int rows_of_tile(int rows, int tiles) const {
    return of[1] == 0 ? of[0] : enough_for(1 + (rows - 1) / tiles);
  }
};

}  // namespace nvfp4::cuda
