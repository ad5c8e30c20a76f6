#pragma once

#include <cstdint>

/// The shapes of nvfp4_cuda_gemm_bench.
namespace nvfp4::bench {

struct GemmShape {
  std::int64_t n, k;
  bool fitted = false;  ///< true if the cost model is fitted to it; the other shapes are reported
  const char* layers = "";
  bool operator==(const GemmShape& o) const { return n == o.n && k == o.k; }
};

/// The shapes for which kernels were tuned: those of DeepSeek-V3 and a square.
inline constexpr GemmShape kKnownShapes[] = {{4096, 7168},  {7168, 2048}, {2112, 7168},
                                             {24576, 1536}, {8192, 8192}, {7168, 18432}};

/// The linear layers of Llama-3.1-8B and 70B on one GPU: qkv, o, gate and up, down.
inline constexpr GemmShape kLlamaShapes[] = {{6144, 4096},  {4096, 4096},  {28672, 4096},
                                             {4096, 14336}, {10240, 8192}, {8192, 8192},
                                             {57344, 8192}, {8192, 28672}};

/// The linear layers of eight models without the known shapes. q, k and v are one layer, and so are
/// gate and up. Layers are for one GPU, or for one of eight tensor-parallel GPUs ("/8"). The list
/// was made before the fit: in order of n and k every second shape is fitted, beginning with the
/// first.
// clang-format off
inline constexpr GemmShape kModelShapes[] = {
    {640, 2880, true, "GPT-OSS qkv/8"},
    {768, 4096, false, "Llama-3.1-8B qkv/8, Qwen3-8B qkv/8"},
    {1024, 5376, true, "Gemma-3-27B qkv/8"},
    {1152, 3072, false, "Phi-3-mini qkv/8"},
    {1280, 8192, true, "Llama-3.1-70B qkv/8"},
    {1792, 5120, false, "GLM-4.5 qkv/8"},
    {2048, 3072, true, "Phi-3-mini gate_up/8"},
    {2880, 512, false, "GPT-OSS o/8"},
    {2880, 4096, true, "GPT-OSS o"},
    {3072, 384, false, "Phi-3-mini o/8"},
    {3072, 1024, true, "Phi-3-mini down/8"},
    {3072, 3072, false, "Phi-3-mini o"},
    {3072, 4096, true, "Qwen3-8B gate_up/8"},
    {3072, 5120, false, "GLM-4.5 gate_up/8"},
    {3072, 8192, true, "Phi-3-mini down"},
    {3584, 2368, false, "Qwen2.5-7B down/8"},
    {3584, 3584, true, "Qwen2.5-7B o"},
    {3584, 4096, false, "Llama-3.1-8B gate_up/8"},
    {3584, 18944, true, "Qwen2.5-7B down"},
    {4096, 512, false, "Llama-3.1-8B o/8, Qwen3-8B o/8"},
    {4096, 1536, true, "Qwen3-8B down/8"},
    {4096, 1792, false, "Llama-3.1-8B down/8"},
    {4096, 4096, true, "Llama-3.1-8B o, Qwen3-8B o"},
    {4096, 12288, false, "Qwen3-8B down"},
    {4096, 14336, true, "Llama-3.1-8B down"},
    {4608, 3584, false, "Qwen2.5-7B qkv"},
    {4736, 3584, true, "Qwen2.5-7B gate_up/8"},
    {5120, 1536, false, "GLM-4.5 o/8, GLM-4.5 down/8"},
    {5120, 2880, true, "GPT-OSS qkv"},
    {5120, 12288, false, "GLM-4.5 o, GLM-4.5 down"},
    {5376, 512, true, "Gemma-3-27B o/8"},
    {5376, 2688, false, "Gemma-3-27B down/8"},
    {5376, 4096, true, "Gemma-3-27B o"},
    {5376, 5376, false, "Gemma-3-27B gate_up/8"},
    {5376, 21504, true, "Gemma-3-27B down"},
    {6144, 4096, false, "Llama-3.1-8B qkv, Qwen3-8B qkv"},
    {7168, 8192, true, "Llama-3.1-70B gate_up/8"},
    {8192, 1024, false, "Llama-3.1-70B o/8"},
    {8192, 3584, true, "Llama-3.1-70B down/8"},
    {8192, 5376, false, "Gemma-3-27B qkv"},
    {8192, 28672, true, "Llama-3.1-70B down"},
    {9216, 3072, false, "Phi-3-mini qkv"},
    {10240, 8192, true, "Llama-3.1-70B qkv"},
    {14336, 5120, false, "GLM-4.5 qkv"},
    {16384, 3072, true, "Phi-3-mini gate_up"},
    {24576, 4096, false, "Qwen3-8B gate_up"},
    {24576, 5120, true, "GLM-4.5 gate_up"},
    {28672, 4096, false, "Llama-3.1-8B gate_up"},
    {37888, 3584, true, "Qwen2.5-7B gate_up"},
    {43008, 5376, false, "Gemma-3-27B gate_up"},
    {57344, 8192, true, "Llama-3.1-70B gate_up"},
};
// clang-format on

/// A mixture-of-experts layer: hidden size, intermediate size, experts, choices of a token.
struct MoeShape {
  const char* model;
  std::int64_t hidden, intermediate, experts, top_k;
};
inline constexpr MoeShape kMoeShapes[] = {{"DeepSeek-V3", 7168, 2048, 256, 8},
                                          {"GPT-OSS-120B", 2880, 2880, 128, 4},
                                          {"Qwen3-30B-A3B", 2048, 768, 128, 8},
                                          {"Mixtral-8x7B", 4096, 14336, 8, 2}};

}  // namespace nvfp4::bench
