// The CPU as a device, in the place of the CUDA backend: what is enqueued on a stream runs when
// somebody waits for it, and not before. The tests of whole checkpoints on a GPU so run on every
// machine and with every sanitizer; kernels and times they leave to a GPU.
#include "device/cpu_as_device.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "backends/backend.h"
#include "backends/cuda/gemm_backend.h"
#include "backends/cuda_build.h"
#include "backends/device_backend.h"
#include "backends/gpu_limits.h"
#include "core/device_memory.h"
#include "core/require.h"
#include "ops/error_parts.h"
#include "quantizers/gptq.h"

namespace nvfp4 {
namespace {

using Queue = std::vector<std::function<void()>>;

std::atomic<int> enqueued_until_failure = 0;
std::atomic<std::size_t> work_given_up = 0;

void enqueue(Stream stream, std::function<void()> work) {
  if (enqueued_until_failure > 0 && --enqueued_until_failure == 0)
    throw DeviceError("as the test wants it");
  require<DeviceError>(stream.handle != nullptr, "the default stream waits for all others");
  static_cast<Queue*>(stream.handle)->push_back(std::move(work));
}

void run(Stream stream) {
  auto& queue = *static_cast<Queue*>(stream.handle);
  for (const auto& work : queue) work();
  queue.clear();
}

MatrixView on_cpu(MatrixView x) {
  x.device = {};
  return x;
}
QuantizedSpan on_cpu(QuantizedSpan q) {
  q.device = {};
  return q;
}
QuantizedView on_cpu(QuantizedView q) {
  q.device = {};
  return q;
}

void quantize_there(const DeviceQuantizeJob& job) {
  std::vector<GlobalScale> global(job.global.data, job.global.data + job.global.size());
  enqueue(job.stream, [job, global = std::move(global)] {
    QuantizeOptions options;
    options.quantizer = job.quantizer;
    options.axis = job.out.shape.axis;
    options.global = global;
    if (job.weights != nullptr)
      options.weights = {job.weights, static_cast<std::size_t>(job.x.cols)};
    quantize_into(on_cpu(job.x), on_cpu(job.out), options);
  });
}

void error_parts_there(const MatrixView& x, const QuantizedView& q, QuantizationError* parts,
                       Stream stream) {
  enqueue(stream, [=] {
    std::fill_n(parts, error_part_count(q.shape), QuantizationError{});
    parts[0] = quantization_error(on_cpu(x), on_cpu(q));  // their sum is what counts
  });
}

void gptq_there(const DeviceGptqJob& job) {
  enqueue(job.stream, [job] {
    GramFactor gram;
    const auto depth = static_cast<std::size_t>(job.gram.depth);
    gram.depth = job.gram.depth;
    gram.damping = job.gram.damping;
    gram.gram.assign(job.gram.gram, job.gram.gram + depth * depth);
    gram.upper.assign(job.gram.upper, job.gram.upper + depth * depth);
    gram.order.assign(job.gram.order, job.gram.order + depth);
    gram.reciprocal.assign(job.gram.reciprocal, job.gram.reciprocal + depth);
    gram.block_inverse.assign(job.gram.block_inverse, job.gram.block_inverse + depth * kBlock);
    gram.block_upper.assign(job.gram.block_upper, job.gram.block_upper + depth * kBlock);
    gram.block_reciprocal.assign(job.gram.block_reciprocal, job.gram.block_reciprocal + depth);
    std::vector<float> x;
    for (std::int64_t r = 0; r < job.x.rows; ++r)
      for (std::int64_t k = 0; k < job.x.cols; ++k) x.push_back(on_cpu(job.x).at(r, k));
    find_backend("").gptq({.gram = &gram,
                           .x = x.data(),
                           .rows = job.x.rows,
                           .divisor = job.divisor,
                           .sweeps = job.sweeps,
                           .mse_codes = job.mse_codes,
                           .mse_scales = job.mse_scales,
                           .codes = job.codes,
                           .scales = job.scales,
                           .chosen = job.chosen,
                           .errors = job.errors},
                          0, job.x.rows);
  });
}

std::int64_t gptq_workspace_there(std::int64_t rows, std::int64_t depth) { return rows * depth; }

std::atomic<FakeSolver> fake_solver = FakeSolver::none;
std::atomic<int> solver_calls = 0;

/// Column after column, as textbooks have it.
bool invert_lower_there(double* h, std::int64_t n, Device) {
  ++solver_calls;
  require<DeviceError>(fake_solver != FakeSolver::refuses, "it does not want to");
  const auto size = static_cast<std::size_t>(n);
  std::vector<double> l(size * size), inverse(size * size);
  for (std::size_t j = 0; j < size; ++j)
    for (std::size_t i = j; i < size; ++i) {
      double sum = h[i * size + j];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i * size + k] * l[j * size + k];
      if (i == j && !(sum > 0)) return false;
      l[i * size + j] = i == j ? std::sqrt(sum) : sum / l[j * size + j];
    }
  for (std::size_t j = 0; j < size; ++j)
    for (std::size_t i = j; i < size; ++i) {
      double sum = i == j ? 1 : 0;
      for (std::size_t k = j; k < i; ++k) sum -= l[i * size + k] * inverse[k * size + j];
      inverse[i * size + j] = sum / l[i * size + i];
    }
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j <= i; ++j) h[i * size + j] = inverse[i * size + j];
  return true;
}

const DeviceSolver* solver_there() {
  static constexpr DeviceSolver kSolver = {
      .why_unusable =
          [] {
            return std::string(fake_solver == FakeSolver::is_missing ? "it is not there" : "");
          },
      .name = [] { return std::string("a stand-in"); },
      .invert_lower = invert_lower_there};
  return fake_solver == FakeSolver::none ? nullptr : &kSolver;
}

void require_device(Device device) {
  const std::string reason = why_unavailable(device);
  require<UnsupportedError>(reason.empty(), "device = cuda:{}: {}", device.index, reason);
}

void* allocate(Device device, std::int64_t bytes) {
  require_device(device);
  const auto size = static_cast<std::size_t>(round_up(bytes, kDeviceAlignment));
  void* const memory = std::aligned_alloc(kDeviceAlignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return std::memset(memory, 0, size);
}

}  // namespace

void fail_to_enqueue(int n) { enqueued_until_failure = n; }
void set_solver(FakeSolver kind) {
  fake_solver = kind;
  solver_calls = 0;
}
int solved() { return solver_calls; }
std::size_t given_up_work() { return work_given_up; }

CudaBuild cuda_build() { return {}; }
std::vector<DeviceInfo> cuda_devices() {
  return {{Device::cuda(), "the CPU as a device", "none", true, ""}};
}
std::string why_unavailable(Device device) {
  return device.type == DeviceType::cpu || device.index == 0 ? "" : "there is one device";
}
GpuLimits gpu_limits(Device device) {
  require_device(device);
  return {};
}

void synchronize(Device device, Stream stream) {
  require_device(device);
  if (device.type != DeviceType::cpu) run(stream);
}

const DeviceBackend& device_backend(Device device) {
  require_device(device);
  static const DeviceBackend backend = {.quantize = quantize_there,
                                        .quantize_rows = nullptr,
                                        .store_rows = nullptr,
                                        .dequantize = nullptr,
                                        .error_parts = error_parts_there,
                                        .amax = nullptr,
                                        .global_scales = nullptr,
                                        .gram = nullptr,
                                        .gptq = gptq_there,
                                        .gptq_workspace = gptq_workspace_there,
                                        .relayout = nullptr,
                                        .solver = solver_there,
                                        .quantize_values = nullptr};
  return backend;
}
const GemmBackend& cuda::gpu_gemm_backend(Device) { throw UnsupportedError("it has no products"); }

void* device_allocate(Device device, std::int64_t bytes) { return allocate(device, bytes); }
void device_free(Device, void* memory) noexcept { std::free(memory); }
void* pinned_allocate(Device device, std::int64_t bytes) { return allocate(device, bytes); }
void pinned_free(Device, void* memory) noexcept { std::free(memory); }
void device_copy(Device, void* to, std::int64_t to_stride, Device, const void* from,
                 std::int64_t from_stride, std::int64_t row_bytes, std::int64_t rows,
                 Stream stream) {
  enqueue(stream, [=] {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * to_stride,
                  static_cast<const std::byte*>(from) + r * from_stride,
                  static_cast<std::size_t>(row_bytes));
  });
}
Stream stream_create(Device device) {
  require_device(device);
  return {new Queue};
}
void stream_destroy(Device, Stream stream) noexcept {
  auto* const queue = static_cast<Queue*>(stream.handle);
  work_given_up += queue->size();
  delete queue;
}
void device_reset(Device) noexcept {}

}  // namespace nvfp4
