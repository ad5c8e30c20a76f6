#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/layers.h"
#include "nvfp4/moe.h"

/// Layers from a checkpoint, by name. A module is what its tensors are called without ".weight":
/// "model.layers.0.mlp.down_proj".
namespace nvfp4 {

/// A model folder, or one .safetensors file, mapped into memory: NVFP4 of every scheme that
/// `nvfp4 inspect` knows, and plain tensors. Or one .gguf file, whose weights are put in order on
/// the way, under the names that the model has elsewhere. Layers keep nothing of it.
class Checkpoint {
 public:
  /// Throws IoError; FormatError, also for a folder that an interrupted quantization left.
  explicit Checkpoint(const std::filesystem::path& path);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  bool has(std::string_view tensor) const;
  /// Of the values, not of codes. Throws FormatError if there is no such tensor.
  std::vector<std::int64_t> shape(std::string_view tensor) const;
  /// A tensor of one dimension (as one row) or two, dequantized if it is NVFP4. Throws FormatError.
  Matrix read(std::string_view tensor, DType dtype = DType::f32) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// What becomes of weights that the checkpoint holds in BF16, F16, F32, FP8 or MXFP4: a
/// FormatError, or they are quantized with the layer's weight_quantizer.
enum class Unquantized : std::uint8_t { refuse, quantize };

/// Common to all: tensors are read where they are mapped. Global scales are those of the file, for
/// a tensor or for each row, also where modules that loaders fuse have different ones. Throws
/// FormatError that names the tensor if one is missing, or has a wrong shape, dtype or global
/// scale; ValueError that names it for a block scale that is NaN or negative; and what the
/// constructors throw.

/// "<module>.weight", and "<module>.bias" if there is one and options.bias is empty.
Linear load_linear(const Checkpoint& checkpoint, std::string_view module,
                   const LinearOptions& options = {},
                   Unquantized unquantized = Unquantized::refuse);
/// The outputs of the modules follow one another: {"…q_proj", "…k_proj", "…v_proj"}.
Linear load_linear(const Checkpoint& checkpoint, std::span<const std::string> modules,
                   const LinearOptions& options = {},
                   Unquantized unquantized = Unquantized::refuse);

/// A weight [G·N, K] (DeepSeek-V4's wo_a), or a stack [G, N, K]. A bias beside it is an
/// UnsupportedError unless options.bias takes its place.
GroupedLinear load_grouped_linear(const Checkpoint& checkpoint, std::string_view module,
                                  std::int64_t groups, const LinearOptions& options = {},
                                  Unquantized unquantized = Unquantized::refuse);
/// A module for each group.
GroupedLinear load_grouped_linear(const Checkpoint& checkpoint,
                                  std::span<const std::string> modules,
                                  const LinearOptions& options = {},
                                  Unquantized unquantized = Unquantized::refuse);

/// The experts below `module` ("model.layers.3.mlp"): "<module>.experts.<e>.gate_proj" (up_proj,
/// down_proj; or w1, w3, w2), or stacks "<module>.experts.gate_up_proj" (or gate_proj and up_proj)
/// and "down_proj". Shared ones are in "<module>.shared_experts" or "shared_expert". The router is
/// the caller's. Experts with biases, or a shared one with a gate of its own, are an
/// UnsupportedError.
Moe load_moe(const Checkpoint& checkpoint, std::string_view module, const MoeOptions& options = {},
             Unquantized unquantized = Unquantized::refuse);

}  // namespace nvfp4
