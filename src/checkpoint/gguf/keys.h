#pragma once

/// Keys of our own, which llama.cpp passes over. With them, there and back gives the same bytes.
namespace nvfp4::gguf {

/// config.json as it was, less its "quantization_config".
inline constexpr const char* kConfigKey = "nvfp4.config";
/// Names of tensors that are F32 in the file because llama.cpp wants it, and were BF16 or F16.
inline constexpr const char* kBf16Key = "nvfp4.bf16";
inline constexpr const char* kF16Key = "nvfp4.f16";
/// JSON: metadata of the safetensors file beyond {"format": "pt"}, if it had any.
inline constexpr const char* kMetadataKey = "nvfp4.metadata";

}  // namespace nvfp4::gguf
