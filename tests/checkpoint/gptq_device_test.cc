// Checkpoints that the GPU quantizes by what calibration saw. Skipped, with the reason, without
// one.
#include "checkpoint/cuda_checkpoint.h"
#include "checkpoint/statistics_file.h"
#include "testing.h"

namespace nvfp4::gptq_device_test {

using safetensors::DType;

/// With Eigen's factors on both sides.
class CudaStatistics : public CudaCheckpoint {
 protected:
  CudaStatistics() { setenv("NVFP4_FACTORS", "eigen", 1); }
  ~CudaStatistics() override { unsetenv("NVFP4_FACTORS"); }
  QuantizeCheckpointOptions options(const std::string& method) const {
    return quantize_options(dir_ / "in", "",
                            {"--method", method, "--statistics", dir_ / "stats.safetensors"});
  }
};

TEST_F(CudaStatistics, GiveTheBytesOfTheCpu) {
  write_tiny_llama(dir_ / "in");
  std::map<std::string, TestStatistics> statistics = llama_statistics();
  for (auto& [module, s] : statistics) s = gram_statistics(module, s.diagonal.size(), 200);
  statistics["model.layers.0.mlp.down_proj"].triangle.clear();  // as by weighted
  auto& zero = statistics["model.layers.1.mlp.down_proj"];
  zero.diagonal.assign(zero.diagonal.size(), 0.0f);
  zero.triangle.assign(zero.triangle.size(), 0.0f);
  write_statistics(dir_ / "stats.safetensors", statistics);
  for (const char* method : {"weighted", "gptq"}) expect_same(options(method), method);
}

/// Factored by the CPU from the layer's matrices too.
TEST_F(CudaStatistics, ExpertsOfFewTokensHaveTheCpusBytes) {
  std::vector<TestTensor> tensors;
  std::map<std::string, TestStatistics> statistics;
  for (int e = 0; e < 4; ++e) {
    const std::string module = fmt::format("model.layers.0.mlp.experts.{}.gate_proj", e);
    tensors.push_back(random_tensor(module + ".weight", {96, 64}));
    statistics[module] = gram_statistics(module, 64, e % 2 ? 20 : 4000);
  }
  write_model(dir_ / "in", {tensors}, "{}");
  write_statistics(dir_ / "stats.safetensors", statistics);
  expect_same(options("gptq"), "experts");
}

/// Many chunks of a weight, weights that share a Gram matrix, all dtypes, any number of threads.
TEST_F(CudaStatistics, ManyChunksAndThreadsHaveTheCpusBytes) {
  write_model(
      dir_ / "in",
      {{random_tensor("a.q_proj.weight", {3000, 512}),
        random_tensor("a.k_proj.weight", {1001, 512}, DType::f32), random_tensor("n", {77})},
       {random_tensor("b.o_proj.weight", {777, 1040}, DType::f16),
        random_tensor("c.up_proj.weight", {1, 16}),
        random_tensor("d.down_proj.weight", {3001, 144})}},
      "{}");
  std::map<std::string, TestStatistics> statistics;
  for (const auto& [module, depth] : std::map<std::string, std::size_t>{
           {"a.q_proj", 512}, {"b.o_proj", 1040}, {"c.up_proj", 16}, {"d.down_proj", 144}})
    statistics[module] = gram_statistics(module, depth, 300);
  statistics["a.k_proj"] = statistics["a.q_proj"];
  statistics["a.k_proj"].triangle.clear();
  write_statistics(dir_ / "stats.safetensors", statistics,
                   {{"nvfp4_statistics", "1"}, {"same_input", R"({"a.k_proj": "a.q_proj"})"}});
  for (const int n : {1, 3, 8}) {
    set_threads(n);
    for (const char* method : {"weighted", "gptq"}) {
      auto of_any_rows = options(method);
      of_any_rows.include = {"*_proj"};
      expect_same(of_any_rows, std::string(method) + ", threads " + std::to_string(n));
    }
  }
}

}  // namespace nvfp4::gptq_device_test
