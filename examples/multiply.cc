// Packs weights once, plans a GEMM and runs it: on a GPU (sm_90) if there is one, else on the CPU.
// The code is the same for both. On a GPU x and out are in its memory.
#include <cstdio>

#include "nvfp4/error.h"
#include "nvfp4/gemm.h"

int main() {
  nvfp4::Matrix dense(nvfp4::DType::bf16, 256, 512), host(nvfp4::DType::bf16, 16, 512);
  for (int i = 0; i < 256 * 512; ++i)
    dense.data<nvfp4::BF16>()[i] = nvfp4::BF16::from_float(static_cast<float>(i % 97) - 48);
  for (int i = 0; i < 16 * 512; ++i)
    host.data<nvfp4::BF16>()[i] = nvfp4::BF16::from_float(static_cast<float>(i % 13) - 6);
  nvfp4::Device device = nvfp4::device_from_name("auto");
  try {
    nvfp4::plan_gemm({.m = 16, .n = 256, .k = 512}, device);
  } catch (const nvfp4::UnsupportedError&) {
    device = {};  // the GPU has no GEMMs
  }
  const nvfp4::QuantizedMatrix q = nvfp4::quantize(dense.view());
  const nvfp4::PackedWeights w = nvfp4::pack_weights(q.view(), {.device = device});
  const nvfp4::GemmPlan plan = nvfp4::plan_gemm(w, {.m = 16, .out = nvfp4::DType::f32});
  std::printf("%s\n", to_string(plan).c_str());

  const nvfp4::Matrix x = nvfp4::to_device(host.view(), device);
  nvfp4::Matrix y(nvfp4::DType::f32, 16, 256, device);
  nvfp4::gemm(plan, {.x = x.view(), .weights = w, .out = y.span()});
  std::printf("y[0, 0] = %g\n",
              static_cast<double>(nvfp4::to_device(y.view(), {}).view().at(0, 0)));
}
