#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/model_config.h"

/// What calibration saw of the inputs of a model's layers, read from a file of it.
namespace nvfp4::checkpoint {

/// Of the input X [tokens, K] of one module.
struct InputStatistics {
  std::int64_t depth = 0;    ///< K
  double count = 0;          ///< tokens
  float amax = 0;            ///< of X; 0 if the file does not say
  double sensitivity = 0;    ///< relative change of the last hidden state for an output error of a
                             ///< token, both squared; 0 if the file does not say
  bool gram = false;         ///< the file holds XᵀX
  std::size_t tensor = 0;    ///< the reader's: of the diagonal
  std::size_t triangle = 0;  ///< the reader's: of XᵀX
  std::int64_t matrix = 0;   ///< in a stack
  std::size_t experts = 0;   ///< the reader's: which of experts_of(), if it is an expert
};

/// Of all keys and all values that an attention put into the cache.
struct CacheAmax {
  float k = 0, v = 0;
};

/// For each channel: an expert that saw fewer tokens is completed to so many.
inline constexpr double kExpertTokens = 4;

class Statistics {
 public:
  virtual ~Statistics() = default;
  virtual const std::filesystem::path& path() const = 0;
  /// Null if the file does not have the module.
  virtual const InputStatistics* find(std::string_view module) const = 0;
  /// Σ x_k². Throws as weights() does.
  std::vector<double> squares(const InputStatistics& of) const;
  /// The same, times a power of two with which the largest is in [1, 2); empty if all are zero.
  /// Thread-safe. Throws IoError, and FormatError for a value that is negative or not finite.
  std::vector<float> weights(const InputStatistics& of) const;
  /// The mean of squares().
  double mean_square(const InputStatistics& of) const;
  /// The upper triangle of XᵀX, row by row. Thread-safe. Throws IoError, and FormatError for a
  /// value that is not finite or a diagonal that is negative.
  virtual std::vector<double> triangle(const InputStatistics& of) const = 0;
  /// By the names of the attentions; empty if the file does not have them.
  virtual const std::map<std::string, CacheAmax, std::less<>>& caches() const;
  /// By which the file is known again.
  virtual std::uint64_t fingerprint() const = 0;
  virtual bool has_grams() const { return false; }
  /// The same weight of every expert of the layer that has a Gram matrix of so many channels and
  /// saw a token, itself among them; empty if it is no expert.
  virtual std::span<const InputStatistics* const> experts_of(const InputStatistics&) const {
    return {};
  }
  /// n of H + n · (the mean of H of a token, over all experts of the layer), by which an expert
  /// that saw few tokens is quantized. 0 if it saw enough, or is no expert.
  double layer_tokens(const InputStatistics& expert) const;

 protected:
  virtual std::vector<double> diagonal(const InputStatistics& of) const = 0;
};

/// A file of `nvfp4-calibrate`, or an importance matrix of llama.cpp in GGUF, whose names
/// follow from the model's architecture. Throws IoError, FormatError, UnsupportedError.
std::shared_ptr<const Statistics> open_statistics(const std::filesystem::path& path,
                                                  const ModelConfig& config);
std::shared_ptr<const Statistics> open_own_statistics(const std::filesystem::path& path);
std::shared_ptr<const Statistics> open_imatrix(const std::filesystem::path& path,
                                               const ModelConfig& config);

}  // namespace nvfp4::checkpoint
