#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/encode/chunk.h"
#include "quantizers/gram_factor.h"

/// Rows quantized by the Gram matrix of their layer's inputs.
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

/// Reads and factors the slot's matrix. Throws IoError, FormatError.
void fill_gram_slot(const Statistics& statistics, const std::string& backend, GramSlot& slot);
/// Bytes that a slot of K = `depth` takes.
std::uint64_t gram_slot_bytes(std::int64_t depth);

struct GptqOptions {
  int sweeps = 4;
  std::string backend;
};

/// Rows [row, row + rows) of the unit. The result lies in `buffers`.
EncodedChunk encode_gptq_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                               std::int64_t row, std::int64_t rows, const GlobalScale& global,
                               const GramSlot& gram, const GptqOptions& options, Buffers& buffers);

/// What was chosen for rows of the weight, and what it leaves: GptqJob::chosen and errors.
void add_candidates(std::span<const std::uint8_t> chosen, const double* errors,
                    const GramFactor& factor, const GlobalScale& global, Outcome& to);

}  // namespace nvfp4::checkpoint
