#pragma once

#include "selftest/run.h"

namespace nvfp4::selftest {

/// What is measured.
struct Sizes {
  std::int64_t rows, cols;    ///< of what is converted
  std::int64_t n, k, copies;  ///< of weights, read in turn
  std::vector<std::int64_t> w4a16_rows, w4a4_rows;
};
/// Far beyond the caches.
const Sizes& sizes_of(Device device);

/// Bandwidth and arithmetic of one subject, beside what the machine has.
void measure(const Subject& subject, const Sizes& sizes, SelftestReport& report);

}  // namespace nvfp4::selftest
