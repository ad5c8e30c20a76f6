#pragma once

#include "checkpoint/formats/shard_writer.h"

namespace nvfp4::gguf {

/// A GGUF file for llama.cpp. Codes and scales only move: into blocks of 64, experts into stacks,
/// rows of q and k as rotary embeddings want them. What is not quantized stays as it is or, where
/// llama.cpp wants that, becomes FP32, which is exact.
std::unique_ptr<const checkpoint::Container> make_container(const checkpoint::ModelFolder& model,
                                                            const checkpoint::Plan& plan);

}  // namespace nvfp4::gguf
