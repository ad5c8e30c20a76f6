#pragma once

/// Keys that only this library writes. llama.cpp ignores them. With them, converting to GGUF and
/// back restores the bytes.
namespace nvfp4::gguf {

/// The original config.json without "quantization_config".
inline constexpr const char* kConfigKey = "nvfp4.config";
/// Names of tensors that were BF16 or F16 and are F32 in the file, as llama.cpp requires.
inline constexpr const char* kBf16Key = "nvfp4.bf16";
inline constexpr const char* kF16Key = "nvfp4.f16";
/// JSON: metadata of the safetensors file, if it has more than {"format": "pt"}.
inline constexpr const char* kMetadataKey = "nvfp4.metadata";

}  // namespace nvfp4::gguf
