#pragma once
#include <cmath>
namespace nvfp4::cuda {
inline float swiglu_one(float gate, float up, float) { return gate / (1 + std::exp(-gate)) * up; }
}  // namespace nvfp4::cuda
