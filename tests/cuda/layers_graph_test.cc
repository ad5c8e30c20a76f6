// Layers in a captured graph, replayed on other inputs and another routing.
#include <cuda_runtime_api.h>

#include "cuda/gpu_layers.h"

namespace nvfp4::layers_graph_test {

using test::kGpu;
using test::make;
using test::MoeCase;
using test::on_gpu;
using test::same_bits;
using Fill = test::Fill;

class CudaLayersGraph : public test::OnHopper {};

constexpr std::int64_t kTokens = 37, kK = 96, kI = 64, kTopK = 3, kGroups = 6;

/// All layers, and all that they read and write, on the GPU.
struct Workload {
  MoeCase c{kTokens, kK, kI, false, kGroups, 2};
  std::vector<WeightView> downs;
  std::vector<Linear> linears;
  std::vector<GroupedLinear> grouped;
  std::vector<Moe> moes;
  Matrix x{DType::bf16, kTokens, kK, kGpu}, h{DType::bf16, kTokens, kI, kGpu};
  test::Array<std::int64_t> ids{c.ids, kGpu};
  test::Array<float> weights{c.weights, kGpu};
  test::Array<std::int32_t> ends{std::vector<std::int32_t>(kGroups), kGpu};
  std::vector<Matrix> results;

  Workload() {
    for (const test::ExpertMatrices& e : c.routed) downs.emplace_back(e.down.view());
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
      const LinearOptions options = on_gpu(LinearOptions{.scheme = scheme, .max_tokens = kTokens});
      linears.emplace_back(c.routed[0].gate.view(), options);
      grouped.emplace_back(downs, options);
      moes.push_back(
          c.moe(on_gpu(MoeOptions{.scheme = scheme, .max_tokens = kTokens, .max_top_k = kTopK})));
      results.emplace_back(DType::bf16, kTokens, kI, kGpu);
      results.emplace_back(DType::bf16, kTokens, kGroups * kK, kGpu);
      results.emplace_back(DType::bf16, kTokens, kK, kGpu);
      results.emplace_back(DType::bf16, kTokens, kK, kGpu);
    }
  }

  void fill(std::uint64_t seed) {
    copy(make(Fill::gaussian, kTokens, kK, seed, DType::bf16).view(), x.span());
    copy(make(Fill::gaussian, kTokens, kI, seed, DType::bf16).view(), h.span());
    std::mt19937_64 rng(seed);
    for (std::int64_t& id : c.ids) id = static_cast<std::int64_t>(rng() % kGroups);
    c.weights = test::random_floats(c.weights.size(), seed);
    std::vector<std::int32_t> sorted;
    for (std::int64_t g = 0; g < kGroups; ++g)
      sorted.push_back(static_cast<std::int32_t>(rng() % (kTokens + 1)));
    std::sort(sorted.begin(), sorted.end());
    const auto upload = [](void* to, const auto& from) {
      const auto n = static_cast<std::int64_t>(from.size() * sizeof(from[0]) / 4);
      copy(MatrixView(from.data(), DType::f32, 1, n), MatrixSpan(to, DType::f32, 1, n, n, kGpu));
    };
    upload(ids.data(), c.ids);
    upload(weights.data(), c.weights);
    upload(ends.data(), sorted);
    for (Matrix& m : results) m = Matrix(DType::bf16, m.rows(), m.cols(), kGpu);
    synchronize(kGpu);
  }

  void run(std::vector<Matrix>& to, Stream stream) const {
    Routing routing = c.routing();
    routing.ids = const_cast<test::Array<std::int64_t>&>(ids).data();
    routing.weights = const_cast<test::Array<float>&>(weights).data();
    for (std::size_t s = 0; s < 2; ++s) {
      linears[s].forward_into(x.view(), to[4 * s].span(), stream);
      grouped[s].forward_into(h.view(), to[4 * s + 1].span(), stream);
      grouped[s].forward_rows_into(h.view(), ends.span(), to[4 * s + 2].span(), stream);
      moes[s].forward_into(x.view(), routing, to[4 * s + 3].span(), stream);
    }
  }
};

TEST_F(CudaLayersGraph, ReplaysWhatACallDoes) {
  Workload w;
  std::vector<Matrix> captured;
  for (const Matrix& m : w.results) captured.emplace_back(DType::bf16, m.rows(), m.cols(), kGpu);
  w.fill(4);
  w.run(w.results, {});  // kernels are loaded outside of the capture
  synchronize(kGpu);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  w.run(captured, {stream});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const std::uint64_t seed : {5, 6, 7}) {
    w.fill(seed);
    w.run(w.results, {});
    synchronize(kGpu);
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (std::size_t i = 0; i < captured.size(); ++i)
        copy(Matrix(DType::bf16, captured[i].rows(), captured[i].cols()).view(),
             captured[i].span());
      synchronize(kGpu);
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      for (std::size_t i = 0; i < captured.size(); ++i)
        EXPECT_TRUE(
            same_bits(to_device(captured[i].view(), {}), to_device(w.results[i].view(), {})))
            << "result " << i << ", seed " << seed;
    }
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace nvfp4::layers_graph_test
