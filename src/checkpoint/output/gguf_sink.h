#pragma once

#include "checkpoint/formats/shard_writer.h"

namespace nvfp4::gguf {

/// Returns the container of a GGUF file for llama.cpp. Codes and scales are copied into blocks of
/// 64 elements, and experts into stacks. Rows of q and k get llama.cpp's order for rotary
/// embeddings. Other tensors keep their dtype or, where llama.cpp requires it, become F32, which is
/// exact. `plan` must outlive the container.
std::unique_ptr<const checkpoint::Container> make_container(const checkpoint::ModelFolder& model,
                                                            const checkpoint::Plan& plan);

}  // namespace nvfp4::gguf
