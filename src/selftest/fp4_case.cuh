#pragma once

#include "selftest/fp4_case.h"

namespace nvfp4::selftest {

/// Multiplies the registers of a lane. kA and kB are the thread ids of the scales.
template <class Product, int kA, int kB>
__device__ __forceinline__ void multiply_case(Fp4Case& c, int lane) {
  Product::template multiply<kA, kB>(c.d[lane], c.a[lane], c.b[lane][0], c.b[lane][1],
                                     c.a_scales[lane], c.b_scales[lane]);
}

}  // namespace nvfp4::selftest
