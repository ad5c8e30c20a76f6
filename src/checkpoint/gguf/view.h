#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/io/tensor_file.h"

namespace nvfp4::gguf {

enum class Naming : std::uint8_t {
  model,   ///< names of the model, single experts, rows in the model's order
  stored,  ///< names and order of the file
};

/// Opens a GGUF file as a source of tensors. NVFP4 weights appear as codes and scales with the
/// names of output/gguf_format.cc. `stored` gives unreadable types as bytes. `model` throws
/// UnsupportedError with the name for an unreadable type, an unknown architecture or a tensor
/// without a name. Throws also IoError and FormatError.
std::unique_ptr<const checkpoint::TensorSource> open_view(const std::filesystem::path& path,
                                                          Naming naming);

}  // namespace nvfp4::gguf
