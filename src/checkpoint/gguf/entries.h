#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/io/json_text.h"
#include "core/require.h"

/// The keys of a file, made of the numbers of config.json.
namespace nvfp4::gguf {

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
