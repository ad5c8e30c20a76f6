#pragma once

#include "sm120/cases.h"

namespace nvfp4::test {

/// What each kernel is to show: one-hot operands, by which each element and each scale of W and of
/// x is seen to reach its sums; odd sizes, groups, layouts, parts of K.
inline std::vector<OmmaCase> omma_cases(const cuda::KernelEntry& kernel) {
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
inline std::vector<OmmaCase> omma_swiglu_cases(const cuda::KernelEntry& kernel) {
  if (kernel.mainloop == cuda::MainloopKind::routed)
    return {{.n = 96, .k = 192, .rows = 6, .groups = 2, .top_k = 2, .scales = Scales::near_one}};
  return {{.n = 96, .k = 192, .rows = 5, .scales = Scales::near_one},
          {.n = 2 * kernel.n,
           .k = 64,
           .rows = kernel.m + 2,
           .scales = Scales::near_one,
           .out = DType::bf16}};
}

}  // namespace nvfp4::test
