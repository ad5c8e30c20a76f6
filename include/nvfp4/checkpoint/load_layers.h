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

/// Functions that load layers from a checkpoint, by name. The name of a module is that of its
/// tensors without ".weight": "model.layers.0.mlp.down_proj".
namespace nvfp4 {

/// An open checkpoint, mapped into memory: a model folder, one .safetensors file or one .gguf file.
/// It holds plain tensors and NVFP4 of every scheme that `nvfp4 inspect` recognizes. Weights of a
/// .gguf file are reordered while they are read, and have the names of other formats. Layers copy
/// what they need, so the checkpoint may be closed.
class Checkpoint {
 public:
  /// Opens a checkpoint. Throws IoError; FormatError, also for the folder of an interrupted
  /// quantization.
  explicit Checkpoint(const std::filesystem::path& path);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// Reports whether there is a tensor with this name.
  bool has(std::string_view tensor) const;
  /// Returns the shape of the values, not of the codes. Throws FormatError if there is no such
  /// tensor.
  std::vector<std::int64_t> shape(std::string_view tensor) const;
  /// Returns a tensor of one dimension (as one row) or two, dequantized if it is NVFP4. Throws
  /// FormatError.
  Matrix read(std::string_view tensor, DType dtype = DType::f32) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// The treatment of weights that are BF16, F16, F32, FP8 or MXFP4 in the checkpoint. They are a
/// FormatError, or are quantized with the layer's weight_quantizer.
enum class Unquantized : std::uint8_t { refuse, quantize };

/// Common to all functions below: tensors are read where they are mapped. Global scales are those
/// of the file, for a tensor or for each row. This is so even if modules that loaders fuse have
/// different ones. Throws FormatError, with the name of the tensor, if one is missing or has a
/// wrong shape, dtype or global scale. Throws ValueError, with the name, for a block scale that is
/// NaN or negative. Throws the errors of the constructors.

/// Loads "<module>.weight", and "<module>.bias" if it exists and options.bias is empty.
Linear load_linear(const Checkpoint& checkpoint, std::string_view module,
                   const LinearOptions& options = {},
                   Unquantized unquantized = Unquantized::refuse);
/// Loads several modules as one layer. Their outputs follow one another: {"…q_proj", "…k_proj",
/// "…v_proj"}.
Linear load_linear(const Checkpoint& checkpoint, std::span<const std::string> modules,
                   const LinearOptions& options = {},
                   Unquantized unquantized = Unquantized::refuse);

/// Loads a weight [G·N, K] (DeepSeek-V4's wo_a), or a stack [G, N, K]. A bias in the checkpoint is
/// an UnsupportedError unless options.bias replaces it.
GroupedLinear load_grouped_linear(const Checkpoint& checkpoint, std::string_view module,
                                  std::int64_t groups, const LinearOptions& options = {},
                                  Unquantized unquantized = Unquantized::refuse);
/// Loads one module for each group.
GroupedLinear load_grouped_linear(const Checkpoint& checkpoint,
                                  std::span<const std::string> modules,
                                  const LinearOptions& options = {},
                                  Unquantized unquantized = Unquantized::refuse);

/// Loads the experts below `module` ("model.layers.3.mlp"): "<module>.experts.<e>.gate_proj"
/// (up_proj, down_proj; or w1, w3, w2), or stacks "<module>.experts.gate_up_proj" (or gate_proj and
/// up_proj) and "down_proj". Shared experts are in "<module>.shared_experts" or "shared_expert".
/// The caller computes the router. Experts with biases, and a shared expert with a gate of its own,
/// are an UnsupportedError.
Moe load_moe(const Checkpoint& checkpoint, std::string_view module, const MoeOptions& options = {},
             Unquantized unquantized = Unquantized::refuse);

}  // namespace nvfp4
