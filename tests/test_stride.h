#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace nvfp4::test {

/// Every how many values, and rows, a long test takes: NVFP4_TEST_STRIDE, or 1 for all. For tools
/// under which a kernel takes a thousand times as long; tests of many kernels take a part of their
/// cases then.
inline std::uint32_t test_stride() {
  const char* const text = std::getenv("NVFP4_TEST_STRIDE");
  return text == nullptr ? 1 : static_cast<std::uint32_t>(std::stoul(text));
}
/// Returns the number of repetitions of such a test.
inline int repeats(int count) { return test_stride() == 1 ? count : 1; }

}  // namespace nvfp4::test
