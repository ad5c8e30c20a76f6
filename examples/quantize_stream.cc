// Quantizes activations on a CUDA stream, captures this in a graph, and replays the graph with new
// activations. An inference server does this for each token. Nothing in it allocates or waits.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>

#include "nvfp4/activation.h"

namespace {

constexpr std::int64_t kTokens = 64, kWidth = 4096;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

nvfp4::Matrix random_tokens(unsigned seed) {
  nvfp4::Matrix x(nvfp4::DType::bf16, kTokens, kWidth);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < kTokens * kWidth; ++i)
    x.data<nvfp4::BF16>()[i] = nvfp4::BF16::from_float(normal(random));
  return x;
}

/// Computes RMSNorm and quantization in one kernel, on the device of x. Each token has a global
/// scale; block scales have the layout of the tensor cores.
void normalize_and_quantize(nvfp4::MatrixView x, const float* norm_weight, nvfp4::QuantizedSpan out,
                            nvfp4::Stream stream) {
  nvfp4::QuantizeOptions options;
  options.scope = nvfp4::GlobalScope::vector;
  options.layout = nvfp4::ScaleLayout::tiled_128x4;
  options.stream = stream;
  nvfp4::rms_norm_quantize_into(x, {norm_weight, kWidth}, out, {}, options);
}

int run() {
  const nvfp4::Device gpu = nvfp4::Device::cuda();
  if (const std::string reason = nvfp4::why_unavailable(gpu); !reason.empty()) {
    std::printf("skipped: no GPU to run on: %s\n", reason.c_str());
    return 0;
  }
  for (const nvfp4::DeviceInfo& device : nvfp4::cuda_devices())
    std::printf("%s: %s\n", nvfp4::device_name(device.device).c_str(), device.name.c_str());

  // All memory is allocated before the capture and not moved: the graph holds its addresses.
  const nvfp4::QuantizedShape shape{.rows = kTokens,
                                    .cols = kWidth,
                                    .layout = nvfp4::ScaleLayout::tiled_128x4,
                                    .scope = nvfp4::GlobalScope::vector};
  nvfp4::Matrix x(nvfp4::DType::bf16, kTokens, kWidth, gpu);
  nvfp4::QuantizedMatrix quantized(shape, gpu);
  nvfp4::Matrix weight(nvfp4::DType::f32, 1, kWidth);
  for (std::int64_t i = 0; i < kWidth; ++i)
    weight.data<float>()[i] = 1.0f + static_cast<float>(i % 7) / 8;
  const nvfp4::Matrix weight_on_gpu = nvfp4::to_device(weight.view(), gpu);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  normalize_and_quantize(x.view(), weight_on_gpu.data<float>(), quantized.span(), {stream});
  check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0));
  std::printf("captured RMSNorm + quantization of [%lld, %lld] BF16 tokens\n",
              static_cast<long long>(kTokens), static_cast<long long>(kWidth));

  bool all_same = true;
  for (const unsigned step : {1u, 2u, 3u}) {
    const nvfp4::Matrix tokens = random_tokens(step);
    nvfp4::copy(tokens.view(), x.span(), {stream});
    check(cudaGraphLaunch(executable, stream));
    nvfp4::synchronize(gpu, {stream});

    nvfp4::QuantizedMatrix expected(shape);
    normalize_and_quantize(tokens.view(), weight.data<float>(), expected.span(), {});
    const bool same = nvfp4::to_device(quantized.view(), {}) == expected;
    all_same &= same;
    std::printf("replay %u: %lld bytes of codes, %lld of scales, %s those of the CPU\n", step,
                static_cast<long long>(shape.code_bytes()),
                static_cast<long long>(shape.scale_bytes()), same ? "the same as" : "NOT");
  }
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  return all_same ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
