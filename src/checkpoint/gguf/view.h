#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/io/tensor_file.h"

namespace nvfp4::gguf {

enum class Naming : std::uint8_t {
  model,   ///< by the model's names, experts one by one, rows in the model's order
  stored,  ///< as in the file
};

/// A GGUF file as a source of tensors: NVFP4 weights are codes and scales by the names of
/// those of output/gguf_format.cc. By the model's names, tensors of a type that cannot be read, of
/// an unknown architecture or without a name are an UnsupportedError that names them; as stored,
/// they are bytes. Throws IoError, FormatError, UnsupportedError.
std::unique_ptr<const checkpoint::TensorSource> open_view(const std::filesystem::path& path,
                                                          Naming naming);

}  // namespace nvfp4::gguf
