#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/io/json_text.h"
#include "core/require.h"

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

/// Returns the keys about a model that programs show: its name and size, license, base models and
/// sampling. They come from the name of the folder or of the model on the hub, from config.json,
/// generation_config.json and the model card. `tensors`: the tensors of the file.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/metadata.py and utility.py.
std::vector<NewEntry> general_entries(const std::filesystem::path& folder, const Json& config,
                                      const std::vector<TensorSpec>& tensors);

/// A key or a tensor that is missing, or that contradicts another one.
struct Fault {
  std::string_view code;  ///< one of finding_kinds(): "gguf-key" or "gguf-tensor"
  std::string name;       ///< the name of the key or tensor
  std::string text;       ///< the message without the file's name
};

/// Returns the faults of a file. A row of the architecture has at most two, which name the first of
/// its layers. Tensors are only compared if the keys have no faults.
std::vector<Fault> faults_of(const Header& header, const Architecture& architecture);

/// Throws FormatError with the first fault.
void require_whole(const Header& header, const Architecture& architecture, const std::string& file);

/// Throws UnsupportedError if the file says that it is no model.
void require_model(const Header& header, const std::string& file);

/// Returns the first value of several names that is present and not null, or null. An array of
/// equal values, one for each layer, is that value.
const Json* value_of(const Json& config, std::initializer_list<const char*> names);

/// Returns "rope_parameters" of newer transformers with "rope_scaling" of older ones, for layers
/// with full attention. Throws FormatError if they contradict each other.
Json rope_of(const Json& config);
/// Returns the kind of scaling: "default" if there is none.
std::string rope_type(const Json& rope);

double number_of(const Json& json, const char* name, double otherwise);
/// Returns a number that must be finite and greater than 0, or `otherwise` without one.
double positive_of(const Json& json, const char* name, double otherwise);

double rope_theta(const Json& config);
std::int64_t head_dim(const Json& config);

/// Collects the keys of an architecture.
class Entries {
 public:
  Entries(const Json& config, const Architecture& architecture, const std::string& file)
      : config_(config), prefix_(std::string(architecture.name) + "."), file_(file) {}

  void plain(std::string key, NewValue value) {
    out_.push_back({std::move(key), std::move(value)});
  }
  void add(const std::string& key, NewValue value) { plain(prefix_ + key, std::move(value)); }
  /// Adds an integer that has the name `name` in config.json.
  void u32(const std::string& key, std::int64_t value, std::int64_t least = 0,
           const char* name = nullptr) {
    require<FormatError>(value >= least && value <= 0xFFFFFFFF,
                         "{}: {} = {}, must be at least {} and fit 32 bits", file_,
                         name == nullptr ? key : name, value, least);
    add(key, new_u32(static_cast<std::uint64_t>(value)));
  }
  /// Adds a key, or gives it another value.
  void set(const std::string& key, NewValue value) {
    for (NewEntry& entry : out_)
      if (entry.key == prefix_ + key) {
        entry.value = std::move(value);
        return;
      }
    add(key, std::move(value));
  }
  bool has(const std::string& key) const {
    return std::ranges::any_of(out_, [&](const NewEntry& e) { return e.key == prefix_ + key; });
  }
  void needed(const std::string& key, std::initializer_list<const char*> names,
              std::int64_t least = 0) {
    const Json* value = value_of(config_, names);
    require<FormatError>(value != nullptr && value->is_number_integer(),
                         "{}: has no integer '{}', which GGUF's {}{} needs", file_, *names.begin(),
                         prefix_, key);
    u32(key, value->get<std::int64_t>(), least, *names.begin());
  }
  void optional(const std::string& key, std::initializer_list<const char*> names) {
    const Json* value = value_of(config_, names);
    if (value != nullptr && value->is_number_integer())
      u32(key, value->get<std::int64_t>(), 0, *names.begin());
  }
  std::vector<NewEntry> take() { return std::move(out_); }

  std::int64_t prediction_layers = 0;  ///< number of layers behind those of config.json

 private:
  const Json& config_;
  std::string prefix_;
  const std::string& file_;
  std::vector<NewEntry> out_;
};

/// Reports whether the architecture has keys of its own for this kind of rotary scaling.
bool scales_rope_itself(const Architecture& architecture, std::string_view rope_type);
/// Adds the keys that this architecture alone has. Throws UnsupportedError for settings that its
/// graph does not support.
void add_own_keys(Entries& out, const Json& config, const Architecture& architecture,
                  const std::string& file);

}  // namespace nvfp4::gguf
