// Quantizes a matrix to NVFP4 in three ways, and prints the error of each.
#include <cmath>
#include <cstdio>
#include <random>

#include "nvfp4/quantize.h"

int main() {
  nvfp4::Matrix x(nvfp4::DType::f32, 1024, 1024);
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 1024 * 1024; ++i) x.data<float>()[i] = normal(random);

  using enum nvfp4::Quantizer;
  for (const nvfp4::Quantizer quantizer : {max, four_over_six, mse}) {
    const nvfp4::QuantizedMatrix q = nvfp4::quantize(x.view(), {.quantizer = quantizer});
    const nvfp4::QuantizationError e = nvfp4::quantization_error(x.view(), q.view());
    std::printf("%-14s relative error %.4f\n", nvfp4::quantizer_name(quantizer).data(),
                std::sqrt(e.squared_error / e.squared_norm));
  }
}
