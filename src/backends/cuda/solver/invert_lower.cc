#include "backends/cuda/solver/invert_lower.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "backends/cuda/runtime.h"
#include "backends/cuda/solver/cusolver.h"
#include "core/device_memory.h"
#include "core/require.h"
#include "core/stream_work.h"

namespace nvfp4::cuda {
namespace {

bool invert_lower(double* h, std::int64_t n, Device device) {
  static std::mutex mutex;  // a matrix may take half of the memory
  const std::lock_guard lock(mutex);
  const std::string reason = cusolver::why_unusable();
  require<UnsupportedError>(reason.empty(), "{}", reason);
  const Current current(device);
  const std::int64_t bytes = n * n * static_cast<std::int64_t>(sizeof(double));
  std::array<int, 2> info{};
  const OwnedStream stream(device);
  const Buffer matrix(bytes, device), info_there(sizeof info, device);
  cusolver::Problem problem{.h = static_cast<double*>(matrix.data()),
                            .n = n,
                            .stream = stream.get().handle,
                            .device = device.index,
                            .info = static_cast<int*>(info_there.data())};
  const cusolver::Workspace sizes = cusolver::workspace_of(problem);
  const Buffer workspace(static_cast<std::int64_t>(sizes.bytes), device);
  std::vector<std::byte> host_workspace(sizes.host_bytes);
  problem.workspace = workspace.data();
  problem.host_workspace = host_workspace.data();
  StreamWork work(device, stream.get());
  device_copy(device, matrix.data(), bytes, {}, h, bytes, bytes, 1, stream.get());
  cusolver::invert_lower(problem, sizes);
  device_copy({}, info.data(), sizeof info, device, info_there.data(), sizeof info, sizeof info, 1,
              stream.get());
  synchronize(device, stream.get());
  require<DeviceError>(info[0] >= 0 && info[1] >= 0, "{}: argument {} of {} is wrong",
                       cusolver::name(), -std::min(info[0], info[1]),
                       info[0] < 0 ? "potrf" : "trtri");
  const bool done = info[0] == 0 && info[1] == 0;
  if (done) device_copy({}, h, bytes, device, matrix.data(), bytes, bytes, 1, stream.get());
  work.wait();
  return done;
}

}  // namespace

const DeviceSolver* solver() {
  static constexpr DeviceSolver kSolver{
      .why_unusable = cusolver::why_unusable, .name = cusolver::name, .invert_lower = invert_lower};
  return &kSolver;
}

}  // namespace nvfp4::cuda
