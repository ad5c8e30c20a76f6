#pragma once

#include "selftest/run.h"

namespace nvfp4::selftest {

/// The problem sizes of a measurement.
struct Sizes {
  std::int64_t rows, cols;    ///< shape of the converted matrix
  std::int64_t n, k, copies;  ///< shape and number of weights, which are read in turn
  std::vector<std::int64_t> w4a16_rows, w4a4_rows;
};
/// Returns problem sizes whose operands exceed the last-level cache several times. Those of the
/// reference are small, since it is a hundred times slower and no cache affects it.
const Sizes& sizes_of(Device device, std::string_view backend);

/// Measures bandwidth and arithmetic of one subject, and adds the limits of the machine.
void measure(const Subject& subject, const Sizes& sizes, SelftestReport& report);

}  // namespace nvfp4::selftest
