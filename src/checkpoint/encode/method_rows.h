#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backends/device_backend.h"
#include "checkpoint/encode/gram_slot.h"
#include "checkpoint/plan/plan.h"

/// What a method does with rows of a weight, on whatever device they lie.
namespace nvfp4::checkpoint {

/// How rows of a unit are quantized, with what their method declares that it needs.
struct RowsMethod {
  Quantizer quantizer = Quantizer::max;
  GlobalScale global;
  std::vector<float> weights = {};  ///< Needs::diagonal; empty: all input channels count the same
  const GramSlot* gram = nullptr;   ///< Needs::gram; null: none was seen, or only zeros
  int sweeps = 0;                   ///< of descent, at most
  std::string_view backend = {};    ///< of the CPU

  /// Of each input channel.
  std::span<const float> channels() const { return gram ? gram->factor.weights : weights; }
};

/// What quantize_rows() reads and writes beside the rows, on their device.
struct RowsRoom {
  std::span<const float> channels = {};  ///< RowsMethod::channels()
  // With a Gram matrix:
  std::uint8_t *mse_codes = nullptr, *mse_scales = nullptr;  ///< of the size of out's
  std::uint8_t* chosen = nullptr;                            ///< rows: GptqJob::chosen
  double* errors = nullptr;                                  ///< GptqJob::errors
  // On a device other than the CPU:
  const DeviceGramFactor* gram = nullptr;
  void* workspace = nullptr;  ///< DeviceBackend::gptq_workspace
};

/// x: on the CPU and with a Gram matrix FP32, without gaps. On another device the work is enqueued.
void quantize_rows(const MatrixView& x, const QuantizedSpan& out, const RowsMethod& method,
                   const RowsRoom& room, Stream stream = {});

/// What was chosen for rows of the weight by a Gram matrix, and what it leaves.
void add_candidates(std::span<const std::uint8_t> chosen, const double* errors,
                    const GramFactor& factor, const GlobalScale& global, Outcome& to);

}  // namespace nvfp4::checkpoint
