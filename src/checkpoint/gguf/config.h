#pragma once

#include <string>
#include <vector>

#include "checkpoint/gguf/file.h"
#include "checkpoint/gguf/names.h"
#include "core/json.h"

/// config.json and the keys of a GGUF file, from one to the other.
/// Source: github.com/ggml-org/llama.cpp, conversion/base.py, set_gguf_parameters(); gguf-py,
/// constants.py.
namespace nvfp4::gguf {

/// Null if config.json's "model_type" has no names here. Throws FormatError.
const Architecture* architecture_of(const Json& config);
/// Null if the file's architecture is not known.
const Architecture* architecture_of(const File& file);

/// What llama.cpp must know of a model. Throws FormatError that names `config_file` and what is
/// missing, UnsupportedError for what cannot be said.
std::vector<NewEntry> entries_of(const Json& config, const Architecture& architecture,
                                 const std::string& config_file);
/// Factors of Llama 3's rotary frequencies, which llama.cpp reads as a tensor; else empty.
std::vector<float> rope_factors(const Json& config);

/// An integer of the configuration, or of one of its other names; `otherwise` if there is none.
std::int64_t integer_of(const Json& config, std::initializer_list<const char*> names,
                        std::int64_t otherwise);

/// config.json of a file.
struct FileConfig {
  std::string text;
  /// The first thing that the file computes with and the text does not say; else empty.
  std::string obstacle;
};

/// Returns the configuration that the file keeps, or one made of its keys and tensors.
FileConfig config_of(const File& file, const Architecture& architecture);

/// Keys that llama.cpp insists on, without "<architecture>.".
std::vector<std::string> required_keys(const Architecture& architecture);

}  // namespace nvfp4::gguf
