#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/format.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::gguf {

/// The destination of the bytes of one planned tensor.
struct Target {
  enum class Kind : std::uint8_t {
    dropped,
    copy,
    f32,         ///< F32 that changes
    widen_bf16,  ///< BF16 to F32
    widen_f16,   ///< F16 to F32
    codes,       ///< NVFP4 codes with their block scales
    scales,      ///< block scales; written together with the codes
  };
  Kind kind = Kind::dropped;
  std::size_t tensor = 0;         ///< index in Layout::tensors
  std::uint64_t begin = 0;        ///< byte offset in that tensor
  std::uint64_t row_bytes = 0;    ///< size of a row of the planned tensor
  Order rows = {}, columns = {};  ///< columns are counted in elements
  std::int64_t cols = 0;          ///< elements of a row, if columns move
  Change change = Change::none;
  Run run = {};             ///< the rows that go there
  bool transposed = false;  ///< the rows of each period of the run become columns there
};

/// The content of a GGUF file, except the bytes of its tensors.
struct Layout {
  std::vector<TensorSpec> tensors;
  std::vector<std::vector<Target>> targets;  ///< destinations of each tensor of the shard
  std::vector<std::string> bf16, f16;        ///< names of tensors that are widened to F32
  std::vector<std::string> warnings;
};

/// Returns the part of a model that a tensor belongs to, if llama.cpp has no place for that part.
/// "": it has one.
std::string_view left_out(std::string_view name, const Json& config);

/// Returns the layout of the file. Throws UnsupportedError, which names the tensor, if it has no
/// name or place in the file. The same error is thrown if experts are missing or differ, or if
/// llama.cpp does not support the dtype. Throws FormatError if rows must be interleaved and the
/// number of heads is missing.
Layout make_layout(const checkpoint::Plan& plan, const checkpoint::ModelFolder& model,
                   const Architecture& architecture, const Json& config);

/// Returns the container of a GGUF file for llama.cpp. Codes and scales are copied into blocks of
/// 64 elements, and experts into stacks. Rows of q and k get llama.cpp's order for rotary
/// embeddings. Other tensors keep their dtype or, where llama.cpp requires it, become F32, which is
/// exact. `plan` must outlive the container.
std::unique_ptr<const checkpoint::Container> make_container(const checkpoint::ModelFolder& model,
                                                            const checkpoint::Plan& plan);

}  // namespace nvfp4::gguf
