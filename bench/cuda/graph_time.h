#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "nvfp4/device.h"
#include "nvfp4/error.h"

/// Times on a GPU: a graph holds one call for each copy of the inputs, which together are larger
/// than the L2 cache; the time is that of a replay over the number of calls, the median of several.
namespace nvfp4::bench {

inline constexpr std::int64_t kRotated = 340'000'000;  ///< bytes of input that are gone through

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw DeviceError(cudaGetErrorString(status));
}

/// Microseconds of one call; `call(i, stream)` works on copy i of `copies`.
inline double measure(std::int64_t copies, const std::function<void(std::int64_t, Stream)>& call,
                      int replays = 15) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (std::int64_t i = 0; i < copies; ++i) call(i, {stream});
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < replays + 3; ++i) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(stop, stream));
    check(cudaEventSynchronize(stop));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  return 1e3 * static_cast<double>(times[times.size() / 2]) / static_cast<double>(copies);
}

}  // namespace nvfp4::bench
