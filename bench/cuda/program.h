#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "graph_time.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"

/// What the benchmarks on a GPU have in common as programs.
namespace nvfp4::bench {

/// Runs `body` if there is a GPU; the exit status.
inline int run_program(const char* name, const std::function<void()>& body) {
  try {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty()) {
      fmt::print(stderr, "{}: no GPU to run on: {}\n", name, reason);
      return 1;
    }
    body();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", name, e.what());
    return 1;
  }
}

/// The GPU's name and the newest CUDA that its driver knows.
inline nlohmann::json describe_gpu() {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0));
  int driver = 0;
  check(cudaDriverGetVersion(&driver));
  return {{"gpu", p.name}, {"cuda_driver", driver}};
}

/// Nothing without a file.
inline void write_json(const std::string& file, const nlohmann::json& j) {
  if (file.empty()) return;
  std::ofstream out(file);
  out << j.dump(1) << '\n';
  if (!out.flush()) throw IoError(fmt::format("--json = \"{}\" could not be written", file));
}

}  // namespace nvfp4::bench
