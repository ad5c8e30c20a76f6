#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "team.h"

/// Limits of the memory: loops that only read or copy.
namespace nvfp4::bench {

/// A loop that transfers `bytes` bytes.
struct Memory {
  double bytes;
  std::function<void(Team&)> run;
};

using ReadLines = std::uint64_t(const std::uint64_t* p, std::size_t words);

/// Reads kStreams streams of kBytes each in turn, whole lines. Prefetches the lines that are kFar
/// and kNear bytes ahead of each.
template <std::size_t kStreams, std::size_t kBytes, std::size_t kFar, std::size_t kNear>
std::uint64_t read_lines(const std::uint64_t* p, std::size_t words) {
  constexpr std::size_t kLine = 8, kStream = kBytes / sizeof(std::uint64_t);
  std::uint64_t bits[kLine] = {};
  for (std::size_t first = 0; first < words; first += kStreams * kStream)
    for (std::size_t i = first; i < first + kStream; i += kLine)
      for (std::size_t s = 0; s < kStreams; ++s) {
        const std::uint64_t* at = p + i + s * kStream;
        if (kFar != 0) __builtin_prefetch(at + kFar / sizeof(std::uint64_t), 0, 2);
        if (kNear != 0) __builtin_prefetch(at + kNear / sizeof(std::uint64_t));
        for (std::size_t j = 0; j < kLine; ++j) bits[j] |= at[j];
      }
  return std::accumulate(bits, bits + kLine, std::uint64_t{0});
}

/// Returns the loops by name. The CPU decides which is fastest; the limit is the best of all.
template <std::size_t kBytes>
std::map<std::string, ReadLines*> ways_to_read() {
  constexpr std::size_t kShort = 1 << 16, kLong = 9 << 15;
  static_assert(kBytes / 2 % (2 * kShort) == 0 && kBytes / 2 % (4 * kLong) == 0,
                "two threads would not read all of it");
  return {{"plain", read_lines<1, kShort, 0, 0>},
          {"near", read_lines<2, kShort, 0, 2048>},
          {"two_steps", read_lines<2, kShort, 4096, 1024>},  // the pattern of the kernels
          {"far_apart", read_lines<4, kLong, 0, 4096>}};
}

/// Returns a loop that copies. Bytes count twice, read and written.
inline Memory copy_gigabyte() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  static std::vector<char> from(kBytes, 1), to(kBytes, 2);
  return {2.0 * kBytes, [](Team& team) {
            const std::size_t part = kBytes / team.size();
            team.run([&](std::size_t t) {
              std::memcpy(to.data() + t * part, from.data() + t * part, part);
              asm volatile("" ::"r"(to.data()) : "memory");
            });
          }};
}

}  // namespace nvfp4::bench
