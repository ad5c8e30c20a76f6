#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device_backend.h"
#include "checkpoint/statistics/statistics.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "ops/factor_gram.h"
#include "quantizers/gram_factor.h"

/// A method applied to rows of a weight, on any device.
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

/// The result of writing a tensor: its error and the choices made.
struct Outcome {
  QuantizationError error;
  double weighted_error = 0;         ///< if requested; see MatrixWork::weighted_error()
  std::uint64_t clamped_blocks = 0;  ///< number of MXFP4 blocks that NVFP4 cannot hold exactly
  /// gptq: the best candidate of each row, by its place in GptqCandidate.
  std::vector<ChosenRows> chosen_rows = {};
  OutputError output = {};  ///< gptq: the error over the calibration text
  GramFactor::By factored = GramFactor::By::nobody;
  /// Only in a format without global scales: the squared error that one global scale for each chunk
  /// of rows would give, otherwise -1.
  float error_with_global = -1;
  /// Indices of the clamped blocks in the source's scales, flattened.
  std::vector<std::int64_t> clamped = {};

  void add_chosen(const ChosenRows& more) {
    if (!chosen_rows.empty() && chosen_rows.back().candidate == more.candidate)
      chosen_rows.back().rows += more.rows;
    else
      chosen_rows.push_back(more);
  }
};

/// The quantization of a matrix's rows, with the data that the method needs.
struct RowsMethod {
  Quantizer quantizer = Quantizer::max;
  GlobalScale global;
  /// For Needs::diagonal; if empty, all input channels have the same weight.
  std::vector<float> weights = {};
  const GramSlot* gram = nullptr;  ///< for Needs::gram; null if no token was seen, or only zeros
  int sweeps = 0;                  ///< largest number of descent sweeps
  std::string_view backend = {};   ///< backend of the CPU

  /// Returns the weight of each input channel.
  std::span<const float> channels() const { return gram ? gram->factor.weights : weights; }
};

/// Memory that quantize_rows() reads and writes in addition to the rows, on their device.
struct RowsRoom {
  std::span<const float> channels = {};  ///< RowsMethod::channels()
  // The next three are used with a Gram matrix.
  std::uint8_t *mse_codes = nullptr, *mse_scales = nullptr;  ///< sizes as in the output
  std::uint8_t* chosen = nullptr;                            ///< GptqJob::chosen, one per row
  double* errors = nullptr;                                  ///< GptqJob::errors
  // The next two are used on a device other than the CPU.
  const DeviceGramFactor* gram = nullptr;
  void* workspace = nullptr;  ///< DeviceBackend::gptq_workspace
};

/// Quantizes rows. On the CPU with a Gram matrix, x is FP32 without gaps. On another device the
/// work is enqueued.
void quantize_rows(const MatrixView& x, const QuantizedSpan& out, const RowsMethod& method,
                   const RowsRoom& room, Stream stream = {});

/// Adds the candidates chosen for rows by a Gram matrix, and their output errors.
void add_candidates(std::span<const std::uint8_t> chosen, const double* errors,
                    const GramFactor& factor, const GlobalScale& global, Outcome& to);

}  // namespace nvfp4::checkpoint
