#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/model_config.h"
#include "checkpoint/io/text_file.h"

/// The statistics of layer inputs from calibration, read from a file.
namespace nvfp4::checkpoint {

/// The statistics of the input X [tokens, K] of one module.
struct InputStatistics {
  std::int64_t depth = 0;  ///< K
  double count = 0;        ///< number of tokens
  float amax = 0;          ///< amax of X; 0 if the file has none
  /// Change of the last hidden state per output error of a token. 0 if the file has none.
  double sensitivity = 0;
  /// Change of the last hidden state if the inputs are quantized. 0 if the file has none.
  double input_sensitivity = 0;
  bool gram = false;         ///< the file holds XᵀX
  std::size_t tensor = 0;    ///< used by the reader: index of the diagonal
  std::size_t triangle = 0;  ///< used by the reader: index of XᵀX
  std::int64_t matrix = 0;   ///< index in a stack
  std::size_t experts = 0;   ///< used by the reader: the list of experts_of(), for an expert
};

/// The amax of all keys and of all values that an attention put into the cache.
struct CacheAmax {
  float k = 0, v = 0;
};

/// Number of tokens per channel. An expert that saw fewer is completed to this number.
inline constexpr double kExpertTokens = 4;

class Statistics {
 public:
  virtual ~Statistics() = default;
  virtual const std::filesystem::path& path() const = 0;
  /// Returns the statistics of a module, or null if the file does not have it.
  virtual const InputStatistics* find(std::string_view module) const = 0;
  /// Returns Σ x_k² of each channel. Throws as weights() does.
  std::vector<double> squares(const InputStatistics& of) const;
  /// Returns squares() times a power of two that brings the largest into [1, 2). Returns nothing if
  /// all are zero. Thread-safe. Throws IoError. Throws FormatError for a value that is negative or
  /// not finite.
  std::vector<float> weights(const InputStatistics& of) const;
  /// Returns the mean of squares().
  double mean_square(const InputStatistics& of) const;
  /// Returns the upper triangle of XᵀX, row by row. Thread-safe. Throws IoError. Throws FormatError
  /// for a value that is not finite or a diagonal that is negative.
  virtual std::vector<double> triangle(const InputStatistics& of) const = 0;
  /// Returns the cache amaxes, by attention. It is empty if the file has none.
  virtual const std::map<std::string, CacheAmax, std::less<>>& caches() const;
  /// Returns a hash that identifies the file.
  virtual std::uint64_t fingerprint() const = 0;
  virtual bool has_grams() const { return false; }
  /// Returns the same projection of every expert of the layer, itself included. Each has a Gram
  /// matrix of the same size and saw a token. The list is empty for other modules.
  virtual std::span<const InputStatistics* const> experts_of(const InputStatistics&) const {
    return {};
  }
  /// Returns n of H + n · (the mean of H per token, over all experts of the layer). An expert that
  /// saw few tokens is quantized with that matrix. Returns 0 if it saw enough, or for other
  /// modules.
  double layer_tokens(const InputStatistics& expert) const;

 protected:
  virtual std::vector<double> diagonal(const InputStatistics& of) const = 0;
  /// Returns the hash of names and starts of tensors, on top of another.
  template <class File>
  static std::uint64_t fingerprint_of(const File& file, const auto& tensors, std::uint64_t hash) {
    for (const auto& t : tensors) {
      std::string bytes(std::min<std::uint64_t>(t.bytes, 1 << 16), '\0');
      file.read(t, 0, std::as_writable_bytes(std::span(bytes)));
      hash = checkpoint::fingerprint(bytes, checkpoint::fingerprint(t.name, hash));
    }
    return hash;
  }
};

/// Opens a file of `nvfp4 calibrate`, or an importance matrix of llama.cpp in GGUF, whose names
/// depend on the model's architecture. Throws IoError, FormatError, UnsupportedError.
std::shared_ptr<const Statistics> open_statistics(const std::filesystem::path& path,
                                                  const ModelConfig& config);
std::shared_ptr<const Statistics> open_own_statistics(const std::filesystem::path& path);
std::shared_ptr<const Statistics> open_imatrix(const std::filesystem::path& path,
                                               const ModelConfig& config);

/// The weight of errors in each input channel, for every format of the layer: the sums of squares
/// of calibration. Thread-safe.
class InputWeights {
 public:
  /// `completes`: experts that saw few tokens are quantized with a Gram matrix that includes their
  /// layer's mean. The sums are then those of its diagonal, scaled to the expert's own tokens.
  InputWeights(const Statistics& statistics, bool completes)
      : statistics_(statistics), completes_(completes) {}

  std::vector<double> of(const InputStatistics& input);
  /// Returns the share of the input's own tokens in the Gram matrix of its weight.
  double share(const InputStatistics& input) const;

 private:
  double tokens_of_layer(const InputStatistics& input) const;
  const std::vector<double>& of_layer(const InputStatistics& expert);

  const Statistics& statistics_;
  bool completes_;
  std::mutex mutex_;  // guards `layers_`
  // Means of a token, keyed by InputStatistics::experts.
  std::map<std::size_t, std::vector<double>> layers_;
};

}  // namespace nvfp4::checkpoint
