#pragma once

#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/file.h"
#include "checkpoint/gguf/names.h"

/// Conversion between config.json and the keys of a GGUF file.
/// Source: github.com/ggml-org/llama.cpp, conversion/base.py, set_gguf_parameters(); gguf-py,
/// constants.py.
namespace nvfp4::gguf {

/// Returns the architecture for "model_type" of config.json, or null if it is unknown. Throws
/// FormatError.
const Architecture* architecture_of(const Json& config);
/// Returns the architecture of a file, or null if it is unknown.
const Architecture* architecture_of(const File& file);

/// Returns the keys that llama.cpp needs. `layers`: the number of layers with tensors, which may
/// include layers for multi-token prediction; 0: as many as config.json says. Throws FormatError
/// with `config_file` and the missing entry, and UnsupportedError for a model that no key can
/// describe.
std::vector<NewEntry> entries_of(const Json& config, const Architecture& architecture,
                                 const std::string& config_file, std::int64_t layers = 0);
/// Returns config.json with the members of its text_config, if it has one, and its own model_type.
/// It has the number of layers even if the model has only a list of them.
Json language_config(const Json& config);
/// Returns the number of layers without those for multi-token prediction, or 0.
std::int64_t main_layers(const Json& config);
/// Returns the kinds of the layers of Nemotron-H, in its own letters: M (Mamba), * (attention), E
/// (experts), - (MLP). Empty for other models.
std::string layer_kinds(const Json& config);

/// A tensor that llama.cpp needs and the model has as a part of config.json.
struct OwnTensor {
  std::string_view name;
  std::vector<float> values = {};
};
inline constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                                    "rope_factors_short.weight"};
std::vector<OwnTensor> own_tensors(const Json& config, const Architecture& architecture);

/// Returns the factors of Llama 3's rotary frequencies, which llama.cpp reads as a tensor. Empty
/// for other models.
std::vector<float> rope_factors(const Json& config);

/// Returns an integer of the configuration under the first of its names, or `otherwise`.
std::int64_t integer_of(const Json& config, std::initializer_list<const char*> names,
                        std::int64_t otherwise);

/// The config.json of a GGUF file.
struct FileConfig {
  std::string text;
  /// Why the text is incomplete: the first property of the file that config.json cannot express.
  /// Empty: complete.
  std::string obstacle;
};

/// Returns the stored config.json of the file, or one made from its keys and tensors.
FileConfig config_of(const File& file, const Architecture& architecture);

/// Returns the value of a key, with "an array" for each array.
Json json_of(const Value& value);

}  // namespace nvfp4::gguf
