// Quantizes and dequantizes a small matrix with what is installed and nothing else.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "nvfp4/format.h"
#include "nvfp4/matrix.h"
#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"

namespace {
int fail(const char* what) {
  std::fprintf(stderr, "consumer: %s\n", what);
  return 1;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(nvfp4::version(), argv[1]) != 0) return fail("wrong version");
  if (nvfp4::E2M1::from_float(2.6f).to_float() != 3.0f) return fail("E2M1 rounds wrongly");
  return 0;
}
