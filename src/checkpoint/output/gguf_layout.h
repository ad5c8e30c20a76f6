#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::gguf {

/// Where the bytes of one planned tensor go.
struct Target {
  enum class Kind : std::uint8_t {
    dropped,
    copy,
    widen_bf16,  ///< to F32
    widen_f16,
    codes,   ///< and their scales
    scales,  ///< go with the codes
  };
  Kind kind = Kind::dropped;
  std::size_t tensor = 0;       ///< in Layout::tensors
  std::uint64_t begin = 0;      ///< in the bytes of that tensor
  std::uint64_t row_bytes = 0;  ///< of the planned tensor
  Interleave interleave;
};

/// Everything about the file but its bytes.
struct Layout {
  std::vector<TensorSpec> tensors;
  std::vector<Target> targets;         ///< of the shard's specs
  std::vector<std::string> bf16, f16;  ///< names of the tensors that were widened
  std::vector<std::string> warnings;
};

/// What a tensor of the model is of, if llama.cpp has no place for that; empty: it has one.
std::string_view left_out(std::string_view name, const Json& config);

/// Throws UnsupportedError that names the tensor: no name or place in the file, a depth that is no
/// multiple of 64, experts that are missing or differ, a dtype or NVFP4 where llama.cpp cannot have
/// it.
Layout make_layout(const checkpoint::Plan& plan, const checkpoint::ModelFolder& model,
                   const Architecture& architecture, const Json& config);

}  // namespace nvfp4::gguf
