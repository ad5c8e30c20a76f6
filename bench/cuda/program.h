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

/// The common parts of the benchmark programs for a GPU.
namespace nvfp4::bench {

/// Runs `body` if there is a GPU. Returns the exit status.
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

/// Returns the GPU's name and the newest CUDA version of its driver.
inline nlohmann::json describe_gpu() {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0));
  int driver = 0;
  check(cudaDriverGetVersion(&driver));
  return {{"gpu", p.name}, {"cuda_driver", driver}};
}

/// Writes JSON to a file. Without a file it does nothing.
inline void write_json(const std::string& file, const nlohmann::json& j) {
  if (file.empty()) return;
  std::ofstream out(file);
  out << j.dump(1) << '\n';
  if (!out.flush()) throw IoError(fmt::format("--json = \"{}\" could not be written", file));
}

}  // namespace nvfp4::bench
