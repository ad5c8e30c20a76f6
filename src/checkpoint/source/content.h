#pragma once

#include <functional>
#include <span>
#include <string>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/source/model_folder.h"

/// By what files are known again, without reading all of them: sizes, all that headers say, and 64
/// bytes from the middle of each tensor. Models of one architecture often differ in nothing else.
namespace nvfp4::checkpoint {

std::string hex(std::uint64_t hash);
std::uint64_t content_of(const TensorFile& file);
/// The same of a safetensors file that was written of `count` tensors and `metadata`, without its
/// header.
std::uint64_t content_of(const InputFile& file, std::size_t count,
                         const std::function<safetensors::TensorSpec(std::size_t)>& spec_of,
                         const safetensors::Metadata& metadata);
/// Times and folders are left out, so that the same model gives the same number anywhere. Throws
/// IoError.
std::uint64_t content_of(const ModelFolder& model);

/// That sample of a tensor.
std::string sample_of(const TensorFile& file, const safetensors::TensorInfo& tensor);

}  // namespace nvfp4::checkpoint
