#pragma once

#include <utility>

#include "sm120/cases.h"

namespace nvfp4::test {

/// Returns the cases of a kernel: one-hot operands, which show that each element and scale of W and
/// x reaches its sums; odd sizes, groups, layouts, parts of K.
inline std::vector<OmmaCase> omma_cases(const cuda::Kernel& kernel) {
  const int m = kernel.m, n = kernel.n;
  if (kernel.mainloop == cuda::MainloopKind::routed)
    return {{.n = n + 13, .k = 320, .rows = 10, .groups = 3, .top_k = 2},
            {.n = n, .k = 128, .rows = 128, .top_k = 1, .pattern = Pattern::x_one_hot},
            {.n = 128, .k = 128, .rows = 4, .groups = 2, .top_k = 4, .pattern = Pattern::w_one_hot},
            {.n = 40,
             .k = 192,
             .rows = 6,
             .groups = 2,
             .top_k = 3,
             .layout = ScaleLayout::tiled_128x4,
             .out = DType::bf16}};
  std::vector<OmmaCase> cases = {
      {.n = n, .k = 128, .rows = 128, .pattern = Pattern::x_one_hot},
      {.n = 128, .k = 128, .rows = m, .pattern = Pattern::w_one_hot},
      {.n = n + 13, .k = 64, .rows = m + 3, .layout = ScaleLayout::tiled_128x4},
      {.n = 77, .k = 320, .rows = 2 * m + 1, .scales = Scales::extreme},
      {.n = 40, .k = 192, .rows = 9, .layout = ScaleLayout::tiled_8x4, .scales = Scales::near_one},
      {.n = 33, .k = 256, .rows = 5, .scales = Scales::with_nan},
      {.n = 72, .k = 448, .rows = 12, .ends = {5, 5, 12}, .layout = ScaleLayout::packed_mn_major},
      {.n = 24, .k = 128, .rows = 7, .groups = 3, .out = DType::bf16},
      {.n = 24,
       .k = 128,
       .rows = 7,
       .groups = 2,
       .x_of_group = true,
       .layout = ScaleLayout::tiled_128x4},
      {.n = 16, .k = 64 * 19, .rows = 3, .layout = ScaleLayout::packed_row_major},
  };
  for (int split = 2; split <= kernel.split_k; split *= 2) {
    cases.push_back({.n = n + 5,
                     .k = 64 * (2 * split + 3),
                     .rows = m + 1,
                     .split_k = split,
                     .backwards = split == 4});
    cases.push_back({.n = 20, .k = 64, .rows = 2, .split_k = split});
  }
  return cases;
}
inline std::vector<OmmaCase> omma_swiglu_cases(const cuda::Kernel& kernel) {
  if (kernel.mainloop == cuda::MainloopKind::routed)
    return {{.n = 96, .k = 192, .rows = 6, .groups = 2, .top_k = 2, .scales = Scales::near_one}};
  return {{.n = 96, .k = 192, .rows = 5, .scales = Scales::near_one},
          {.n = 2 * kernel.n,
           .k = 64,
           .rows = kernel.m + 2,
           .scales = Scales::near_one,
           .out = DType::bf16}};
}

/// Odd M and N, and a group with no rows between others; routed, a row that names no group.
inline OmmaCase omma_depth_case(int k, bool routed) {
  constexpr Scales kScales[] = {Scales::near_one, Scales::any, Scales::extreme};
  const int i = k / 64;
  OmmaCase c{.n = 17 + 2 * (i % 8), .k = k, .rows = 7 + 2 * (i % 3), .scales = kScales[i % 3]};
  if (routed) {
    c.groups = 2;
    c.top_k = 1;
  } else {
    c.ends = {3, 3, c.rows};
  }
  return c;
}
/// Returns a number of parts of K that the kernel has, in turn.
inline int split_of_depth(const cuda::Kernel& kernel, int k) {
  const int split = 1 << k / 64 % 3;
  return (kernel.split_k & split) != 0 ? split : 1;
}

/// Every kernel of the list, ConfigOf<its index>, with one depth.
template <template <int> class ConfigOf, class Machine>
void expect_depth(int k) {
  OmmaOperands grouped(omma_depth_case(k, false)), routed(omma_depth_case(k, true));
  const auto expect = [&]<int kIndex>(std::integral_constant<int, kIndex>) {
    constexpr cuda::Kernel kKernel = cuda::sm120::kKernels[kIndex];
    OmmaOperands& o = kKernel.mainloop == cuda::MainloopKind::routed ? routed : grouped;
    o.c.split_k = split_of_depth(kKernel, k);
    Machine machine;
    expect_chain<ConfigOf<kIndex>>(o, machine);
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (expect(std::integral_constant<int, static_cast<int>(kIndex)>{}), ...);
  }(std::make_index_sequence<std::size(cuda::sm120::kKernels)>{});
}

}  // namespace nvfp4::test
