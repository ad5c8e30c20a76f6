#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/statistics/statistics.h"
#include "ops/factor_gram.h"
#include "quantizers/gram_factor.h"

/// The Gram matrices of the inputs of layers, factored.
namespace nvfp4::checkpoint {

/// H of all experts of a layer over their tokens, for those that saw few; filled by the first.
struct LayerGram {
  std::once_flag once;
  std::vector<double> mean;  ///< of a token: the upper triangle
};

/// One Gram matrix, which the weights that share an input share.
struct GramSlot {
  const InputStatistics* statistics = nullptr;
  std::string module;                     ///< the first that needs it, for errors
  GramFactor factor;                      ///< depth 0: the inputs were all zero
  std::shared_ptr<LayerGram> layer = {};  ///< null: not wanted
};

/// Reads and factors the slot's matrix. Throws IoError, FormatError, and what `library` does.
void fill_gram_slot(const Statistics& statistics, const std::string& backend,
                    const InvertLower& library, GramSlot& slot);
/// Bytes that a slot of K = `depth` takes.
std::uint64_t gram_slot_bytes(std::int64_t depth);

}  // namespace nvfp4::checkpoint
