#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/statistics/statistics.h"
#include "ops/factor_gram.h"
#include "quantizers/gram_factor.h"

/// The factored Gram matrices of layer inputs.
namespace nvfp4::checkpoint {

/// The Gram matrix over the tokens of all experts of a layer, for experts that saw few. Its first
/// user fills it.
struct LayerGram {
  std::once_flag once;
  std::vector<double> mean;  ///< mean of a token: the upper triangle
};

/// One Gram matrix. Weights with the same input share it.
struct GramSlot {
  const InputStatistics* statistics = nullptr;
  std::string module;                     ///< the first module that needs it, for errors
  GramFactor factor;                      ///< depth 0: all inputs were zero
  std::shared_ptr<LayerGram> layer = {};  ///< null if the expert saw enough tokens
};

/// Reads and factors the slot's matrix. Throws IoError, FormatError and the errors of `library`.
void fill_gram_slot(const Statistics& statistics, const std::string& backend,
                    const InvertLower& library, GramSlot& slot);
/// Returns the size in bytes of a slot with K = `depth`.
std::uint64_t gram_slot_bytes(std::int64_t depth);

}  // namespace nvfp4::checkpoint
