// Creates operands of a GEMM and measures it.
#include "backends/cuda/tune_measure.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/graph_time.h"
#include "backends/cuda/runtime.h"
#include "nvfp4/runtime.h"

namespace nvfp4::cuda {
namespace {

constexpr std::int64_t kManyRows = 1024;  ///< from here on the weights do not dominate the time
constexpr std::int64_t kMostCalls = 512;  ///< in a graph
constexpr int kReplays = 9;

/// Splitmix64: the operands are the same each time.
class Random {
 public:
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>((*this)() % static_cast<std::uint64_t>(limit));
  }

 private:
  std::uint64_t state_ = 4;
};

/// Returns weights with all codes, and scales from 0.5 to 2.
QuantizedMatrix random_weights(std::int64_t n, std::int64_t k, Device device, Random& random) {
  QuantizedMatrix q({.rows = n, .cols = k});
  for (std::int64_t i = 0; i < q.shape().code_bytes(); ++i)
    q.codes()[i] = static_cast<std::uint8_t>(random() >> 24);
  for (std::int64_t i = 0; i < q.shape().scale_bytes(); ++i)
    q.scales()[i] = static_cast<std::uint8_t>(0x30 + random() % 16);
  q.global_scale()[0] = 0x1p-6f;
  return to_device(q.view(), device);
}

/// Returns values from 1/64 to 1 with random signs.
Matrix random_matrix(DType dtype, std::int64_t rows, std::int64_t cols, Device device,
                     Random& random) {
  Matrix m(dtype, rows, cols);
  const int bias = dtype == DType::bf16 ? 127 : 15, mantissa = dtype == DType::bf16 ? 7 : 10;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const std::uint64_t r = random();
    const auto exponent = static_cast<std::uint64_t>(bias - 6) + r % 6;
    m.data<std::uint16_t>()[i] = static_cast<std::uint16_t>(
        (r >> 32 & 1) << 15 | exponent << mantissa | (r >> 40 & ((1u << mantissa) - 1)));
  }
  return to_device(m.view(), device);
}

Buffer upload(const std::vector<std::int32_t>& values, Device device) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof values[0]);
  Buffer there(std::max<std::int64_t>(bytes, 16), device);
  check(cudaMemcpy(there.data(), values.data(), static_cast<std::size_t>(bytes),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return there;
}

class Product {
 public:
  Product(const GemmDescription& d, Device device, const GemmBackend& backend)
      : backend_(backend), rows_(d.m), quantizes_x_(d.scheme == Scheme::w4a4) {
    plan_.description = d;
    plan_.description.scheme = Scheme::w4a16;
    plan_.description.autotune = false;
    if (d.scheme == Scheme::w4a4) plan_.description.x = DType::bf16;
    plan_.device = device;
    plan_.backend = &backend;
    Random random;
    make_weights(random);
    make_operands(random);
    make_groups(random);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  double time(const KernelPlan& kernels) {
    const Current current(plan_.device);
    plan_.chosen = std::make_shared<KernelPlan>(kernels);
    if (const std::int64_t bytes = call_workspace_bytes(kernels); bytes > workspace_bytes_) {
      workspace_bytes_ = bytes;
      workspace_ = Buffer(workspace_bytes_, plan_.device);
    }
    run(0, {});  // errors appear here, not in the graph
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return graph_time(
        calls_, [this](std::int64_t i, Stream stream) { run(i, stream); }, kReplays);
  }

 private:
  const GemmDescription& d() const { return plan_.description; }

  /// Copies the weights, so that no call of a graph finds its weights in the L2 cache.
  void make_weights(Random& random) {
    const PackedShape shape{
        .groups = d().groups,
        .rows = d().n,
        .cols = d().k,
        .gate_up = d().epilogue == Epilogue::none ? std::nullopt : std::optional(GateUp{}),
        .device = plan_.device};
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::int64_t bytes = std::max<std::int64_t>(1, shape.bytes());
    const bool many = rows_ >= kManyRows;
    const std::int64_t room = static_cast<std::int64_t>(free / 2) / bytes;
    const std::int64_t copies = std::clamp<std::int64_t>(
        many ? 2 : ceil_div(kRotated, bytes) + 1, 1, std::clamp<std::int64_t>(room, 1, kMostCalls));
    // A few rows read only their groups' weights; each call reads other groups.
    const std::int64_t read = bytes / d().groups * std::min(d().groups, rows_);
    calls_ = many ? 2 : std::clamp(ceil_div(kRotated, read) + 1, copies, kMostCalls);
    const QuantizedMatrix q = random_weights(d().n, d().k, plan_.device, random);
    const PackPart part{q.view(), 0, d().n};
    for (std::int64_t i = 0; i < copies; ++i) {
      auto packed = std::make_shared<PackedWeights::Impl>("tune_gemm", shape);
      for (std::int64_t g = 0; g < d().groups; ++g)
        backend_.pack({.parts = {&part, 1}, .packed = packed.get(), .group = g});
      weights_.emplace_back(std::move(packed));
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // q is destroyed
  }

  void make_operands(Random& random) {
    const bool each = d().form == GemmForm::every_group;
    const bool of_tokens = d().form == GemmForm::routed && d().shared_x;
    const std::int64_t rows = of_tokens ? rows_ / d().top_k : rows_;
    const std::int64_t cols = d().k * (each && !d().shared_x ? d().groups : 1);
    x_ = random_matrix(d().x, rows, cols, plan_.device, random);
    if (quantizes_x_) quantized_x_ = random_weights(rows, cols, plan_.device, random);
    if (d().epilogue == Epilogue::swiglu_quantize)
      quantized_ = QuantizedMatrix({.rows = rows_, .cols = d().n / 2}, plan_.device);
    else
      out_ = Matrix(d().out, rows_,
                    d().epilogue == Epilogue::swiglu ? d().n / 2 : d().n * (each ? d().groups : 1),
                    plan_.device);
  }

  /// Sets the groups of the rows for each call.
  void make_groups(Random& random) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < calls_; ++i) {
      if (d().form == GemmForm::routed) append_ids(random, values);
      if (d().form == GemmForm::grouped) append_ends(random, values);
    }
    groups_ = upload(values, plan_.device);
  }
  /// Appends consecutive choices for each token. They differ if there are enough groups.
  void append_ids(Random& random, std::vector<std::int32_t>& ids) const {
    for (std::int64_t t = 0; t < rows_ / d().top_k; ++t) {
      const std::int64_t first = random.below(d().groups);
      for (std::int64_t j = 0; j < d().top_k; ++j)
        ids.push_back(static_cast<std::int32_t>((first + j) % d().groups));
    }
  }
  void append_ends(Random& random, std::vector<std::int32_t>& ends) const {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(d().groups));
    for (std::int64_t row = 0; row < rows_; ++row)
      ++rows[static_cast<std::size_t>(random.below(d().groups))];
    std::int32_t end = 0;
    for (const std::int32_t count : rows) ends.push_back(end += count);
  }

  void run(std::int64_t call, Stream stream) {
    GemmArguments a{.x = x_.view(),
                    .weights = weights_[static_cast<std::size_t>(call) % weights_.size()]};
    if (static_cast<const KernelPlan*>(plan_.chosen.get())->architecture->reads_quantized_x)
      a.x = quantized_x_.view();
    const auto* const groups = static_cast<const std::int32_t*>(groups_.data());
    if (d().epilogue == Epilogue::swiglu_quantize) {
      a.out = quantized_.span();
      a.out_global = std::span<const GlobalScale>(&global_, 1);
    } else {
      a.out = out_.span();
    }
    if (d().form == GemmForm::grouped)
      a.row_ends = {groups + call * d().groups, static_cast<std::size_t>(d().groups)};
    if (d().form == GemmForm::routed)
      a.routing = {.ids = groups + call * rows_,
                   .id_stride = d().top_k,
                   .rows = rows_ / d().top_k,
                   .top_k = d().top_k};
    backend_.run(
        {plan_,
         a,
         {static_cast<std::byte*>(workspace_.data()), static_cast<std::size_t>(workspace_bytes_)},
         stream});
  }

  const GemmBackend& backend_;
  std::int64_t rows_, calls_ = 1, workspace_bytes_ = 0;
  bool quantizes_x_;  ///< W4A4: kernels read x in BF16, as after dequantization, or quantized
  GemmPlan::Impl plan_;
  std::vector<PackedWeights> weights_;
  Matrix x_, out_;
  QuantizedMatrix quantized_, quantized_x_;
  GlobalScale global_ = GlobalScale::from_amax(64.0f, Quantizer::max);
  Buffer groups_, workspace_;
};

}  // namespace

TuneTarget tune_target(Device device) {
  cudaDeviceProp gpu{};
  check(cudaGetDeviceProperties(&gpu, device.index), "cudaGetDeviceProperties");
  int cuda = 0;
  check(cudaDriverGetVersion(&cuda), "cudaDriverGetVersion");
  std::ostringstream proc;
  if (std::ifstream in("/proc/driver/nvidia/version"); in) proc << in.rdbuf();
  return {.gpu = fmt::format("{}, {} multiprocessors", gpu.name, gpu.multiProcessorCount),
          .driver = driver_version(proc.str(), cuda),
          .library = version(),
          .capability = {
              .major = gpu.major, .minor = gpu.minor, .multiprocessors = gpu.multiProcessorCount}};
}

MeasurePlan prepare_measuring(const GemmDescription& description, Device device,
                              const GemmBackend& backend) {
  const Current current(device);
  const auto product = std::make_shared<Product>(description, device, backend);
  return [product](const KernelPlan& plan) { return product->time(plan); };
}

}  // namespace nvfp4::cuda
