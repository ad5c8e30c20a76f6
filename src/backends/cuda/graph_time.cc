#include "backends/cuda/graph_time.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "backends/cuda/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr int kWarmUp = 3;  ///< replays that are not timed

struct Stop {
  void operator()(cudaStream_t s) const { (void)cudaStreamDestroy(s); }
  void operator()(cudaGraph_t g) const { (void)cudaGraphDestroy(g); }
  void operator()(cudaGraphExec_t g) const { (void)cudaGraphExecDestroy(g); }
  void operator()(cudaEvent_t e) const { (void)cudaEventDestroy(e); }
};
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Stop>;

Owned<cudaStream_t> make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Owned<cudaStream_t>(stream);
}

Owned<cudaEvent_t> make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return Owned<cudaEvent_t>(event);
}

/// Captures the calls as a graph. An exception ends the capture of the stream.
Owned<cudaGraphExec_t> capture(std::int64_t calls, cudaStream_t stream,
                               const std::function<void(std::int64_t, Stream)>& call) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t captured = nullptr;
  try {
    for (std::int64_t i = 0; i < calls; ++i) call(i, {stream});
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &captured);
    (void)cudaGetLastError();
    const Owned<cudaGraph_t> graph(captured);
    throw;
  }
  check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
  const Owned<cudaGraph_t> graph(captured);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return Owned<cudaGraphExec_t>(executable);
}

}  // namespace

double graph_time(std::int64_t calls, const std::function<void(std::int64_t, Stream)>& call,
                  int replays) {
  const Owned<cudaStream_t> stream = make_stream();
  const Owned<cudaGraphExec_t> graph = capture(calls, stream.get(), call);
  const Owned<cudaEvent_t> start = make_event(), stop = make_event();
  std::vector<float> times;
  for (int i = 0; i < replays + kWarmUp; ++i) {
    check(cudaEventRecord(start.get(), stream.get()), "cudaEventRecord");
    check(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
    check(cudaEventRecord(stop.get(), stream.get()), "cudaEventRecord");
    check(cudaEventSynchronize(stop.get()), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.get(), stop.get()), "cudaEventElapsedTime");
    if (i >= kWarmUp) times.push_back(ms);
  }
  std::ranges::sort(times);
  return 1e3 * static_cast<double>(times[times.size() / 2]) / static_cast<double>(calls);
}

}  // namespace nvfp4::cuda
