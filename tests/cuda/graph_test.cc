// Every operation inside a captured graph, replayed on other inputs.
#include <cuda_runtime_api.h>

#include "core/device_memory.h"
#include "placed.h"
#include "testing.h"

namespace nvfp4::graph_test {

using test::Array;
using test::Fill;

class CudaGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
};

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)

constexpr std::int64_t kRows = 129, kCols = 288, kTokensOfTopK = 6;

/// Everything that the operations below read and write, on one device.
struct Workload {
  Device device;
  Matrix x, gate_up, streams, mix, residual, y, dense, gram;
  Array<float> weight, amaxes;
  Array<GlobalScale> globals;
  Array<std::int32_t> starts, ends, ids;
  Array<std::int64_t> staged_ids;
  Array<float> routing_weights, staged_weights;
  QuantizedMatrix plain, given, dynamic, searched, normed, mixed, gated, staged, grouped;
  std::vector<QuantizedMatrix*> results{&plain, &given, &dynamic, &searched, &normed,
                                        &mixed, &gated, &staged,  &grouped};
  Array<std::uint8_t> tiled;

  explicit Workload(Device d)
      : device(d),
        x(DType::bf16, kRows, kCols, d),
        gate_up(DType::bf16, kRows, 2 * kCols, d),
        streams(DType::bf16, kRows, 4 * kCols, d),
        mix(DType::f32, kRows, 4, d),
        residual(DType::bf16, kRows, kCols, d),
        y(DType::bf16, kRows, kCols, d),
        dense(DType::bf16, kRows, kCols, d),
        gram(DType::f32, kCols, 16, d),
        weight(std::vector<float>(kCols, 1.25f), d),
        amaxes(std::vector<float>(1, 3.0f), d),
        globals(std::vector<GlobalScale>(1), d),
        starts({0, 40, 100}, d),
        ends({33, 80, 129}, d),
        ids(std::vector<std::int32_t>(kRows * kTokensOfTopK, 7), d),
        staged_ids(std::vector<std::int64_t>(kRows * kTokensOfTopK, -1), d),
        routing_weights(std::vector<float>(kRows * kTokensOfTopK, 0.5f), d),
        staged_weights(std::vector<float>(kRows * kTokensOfTopK, -1.0f), d),
        plain(shape(GlobalScope::tensor), d),
        given(shape(GlobalScope::tensor), d),
        dynamic(shape(GlobalScope::vector), d),
        searched(shape(GlobalScope::tensor), d),
        normed(shape(GlobalScope::vector), d),
        mixed(shape(GlobalScope::vector), d),
        gated(shape(GlobalScope::tensor), d),
        staged(shape(GlobalScope::vector), d),
        grouped(shape(GlobalScope::vector), d),
        tiled(std::vector<std::uint8_t>(static_cast<std::size_t>(
                  scale_bytes(ScaleLayout::tiled_128x4, kRows, kCols / 16))),
              d) {}

  static QuantizedShape shape(GlobalScope scope) {
    return {.rows = kRows, .cols = kCols, .layout = ScaleLayout::linear, .scope = scope};
  }

  void fill(std::uint64_t seed) {
    copy(test::make(Fill::student, kRows, kCols, seed, DType::bf16).view(), x.span());
    copy(test::make(Fill::gaussian, kRows, 2 * kCols, seed, DType::bf16).view(), gate_up.span());
    copy(test::make(Fill::gaussian, kRows, 4 * kCols, seed, DType::bf16).view(), streams.span());
    copy(test::make(Fill::gaussian, kRows, 4, seed).view(), mix.span());
    copy(test::make(Fill::gaussian, kRows, kCols, seed + 1, DType::bf16).view(), residual.span());
    if (device.type == DeviceType::cuda) synchronize(device);
  }

  void run(Stream stream, const char* backend) {
    QuantizeOptions o{.quantizer = Quantizer::max, .backend = backend, .stream = stream};
    quantize_into(x.view(), plain.span(), o);
    amax_into(x.view(), amaxes.data(), GlobalScope::tensor, BlockAxis::rows, backend, stream);
    global_scales_into(amaxes.data(), globals.data(), 1, Quantizer::mse, device, stream);
    o.global = {globals.data(), 1, device};
    quantize_into(x.view(), given.span(), o);
    o.quantizer = Quantizer::mse;
    gram_into(x.view(), gram.span(), false, stream);
    o.hessian = gram.view();
    quantize_into(x.view(), searched.span(), o);
    o.hessian = {};
    swiglu_quantize_into(gate_up.view(), gated.span(), {.interleave = 8, .limit = 1.5f}, o);
    o.quantizer = Quantizer::max;
    o.global = {};
    o.scope = GlobalScope::vector;
    quantize_into(x.view(), dynamic.span(), o);
    rms_norm_quantize_into(x.view(), weight.span(), normed.span(),
                           {.residual = residual.view(), .residual_out = y.span()}, o);
    mix_rms_norm_quantize_into(streams.view(), mix.view(), weight.span(), mixed.span(), {}, o);
    stage_moe_into(x.view(),
                   {ids.data(), IndexType::i32, kTokensOfTopK, routing_weights.data(),
                    kTokensOfTopK, kRows, kTokensOfTopK},
                   staged.span(),
                   {staged_ids.data(), kTokensOfTopK, staged_weights.data(), kTokensOfTopK}, o);
    quantize_grouped_into(x.view(), starts.span(), ends.span(), grouped.span(), o);
    dequantize_into(plain.view(), dense.span(), backend, stream);
    relayout_scales({plain.scales(), static_cast<std::size_t>(plain.shape().scale_bytes())},
                    ScaleLayout::linear, {tiled.data(), tiled.span().size()},
                    ScaleLayout::tiled_128x4, kRows, kCols / 16, device, stream);
  }

  test::Result result() const {
    test::Result r;
    for (const QuantizedMatrix* q : results) test::add(r, q->view());
    test::add(r, "y", y.view());
    test::add(r, "dense", dense.view());
    test::add(r, "gram", gram.view());
    r.emplace_back("tiled", tiled.bytes());
    r.emplace_back("ids", staged_ids.bytes());
    r.emplace_back("weights", staged_weights.bytes());
    return r;
  }
};

TEST_F(CudaGraph, ReplaysEveryOperationOnNewInputs) {
  Workload gpu(Device::cuda()), cpu(Device{});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  gpu.run({stream}, "");
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const std::uint64_t seed : {5, 6, 7}) {
    gpu.fill(seed);
    cpu.fill(seed);
    cpu.run({}, "reference");
    const test::Result want = cpu.result();
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(test::difference(gpu.result(), want), "") << "seed " << seed;
    }
  }
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

/// Its destructor may run at any time, as Python's collector does it: that must not end a capture.
TEST_F(CudaGraph, FreeDuringCaptureIsAllowed) {
  auto matrix = std::make_unique<Matrix>(DType::bf16, 64, 64, Device::cuda());
  auto pinned = std::make_unique<PinnedMemory>(Device::cuda(), 64);
  auto own_stream = std::make_unique<OwnedStream>(Device::cuda());
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  matrix.reset();
  pinned.reset();
  own_stream.reset();
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  if (graph != nullptr) {
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

}  // namespace nvfp4::graph_test
