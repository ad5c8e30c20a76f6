// Quantizes and dequantizes a small matrix with what is installed and nothing else.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "nvfp4/error.h"
#include "nvfp4/format.h"
#include "nvfp4/matrix.h"
#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"

namespace {

bool check(bool ok, const char* what) {
  if (!ok) std::fprintf(stderr, "consumer: wrong: %s\n", what);
  return ok;
}

nvfp4::Matrix ramp(std::int64_t rows, std::int64_t cols) {
  nvfp4::Matrix x(nvfp4::DType::f32, rows, cols);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    x.data<float>()[i] = static_cast<float>(i % 97) - 48.0f;
  return x;
}

bool round_trip_is_close() {
  const nvfp4::Matrix x = ramp(8, 64);
  const nvfp4::QuantizedMatrix q = nvfp4::quantize(x.view());
  const nvfp4::Matrix y = nvfp4::dequantize(q.view());
  double error = 0, power = 0;
  for (std::int64_t i = 0; i < 8 * 64; ++i) {
    const double a = x.data<float>()[i], b = y.data<float>()[i];
    error += (a - b) * (a - b);
    power += a * a;
  }
  return error > 0 && std::sqrt(error / power) < 0.15;
}

/// An exception must keep its type across the library's boundary, a shared one's too.
bool error_keeps_its_type() {
  try {
    nvfp4::quantize(ramp(1, 17).view());
  } catch (const nvfp4::ShapeError&) {
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool ok = check(argc == 2 && std::strcmp(nvfp4::version(), argv[1]) == 0, "version");
  ok &= check(nvfp4::E2M1::from_float(2.6f).to_float() == 3.0f, "2.6 as E2M1");
  ok &= check(round_trip_is_close(), "quantize and dequantize");
  ok &= check(error_keeps_its_type(), "17 columns are a ShapeError");
  return ok ? 0 : 1;
}
