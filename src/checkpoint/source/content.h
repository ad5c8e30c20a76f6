#pragma once

#include <functional>
#include <string>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/source/model_folder.h"

/// Fingerprints that identify files without reading all of their bytes. They cover sizes, headers
/// and 64 bytes from the middle of each tensor. Models of one architecture often differ only in
/// those bytes.
namespace nvfp4::checkpoint {

std::string hex(std::uint64_t hash);
std::uint64_t content_of(const TensorFile& file);
/// Returns the same for a safetensors file that was written with `count` tensors and `metadata`. It
/// does not parse the header.
std::uint64_t content_of(const InputFile& file, std::size_t count,
                         const std::function<safetensors::TensorSpec(std::size_t)>& spec_of,
                         const safetensors::Metadata& metadata);
/// Returns the fingerprint of a model. It does not depend on times and folders, so a copied model
/// has the same. Throws IoError.
std::uint64_t content_of(const ModelFolder& model);

/// Returns the 64 bytes from the middle of a tensor.
std::string sample_of(const TensorFile& file, const safetensors::TensorInfo& tensor);

}  // namespace nvfp4::checkpoint
