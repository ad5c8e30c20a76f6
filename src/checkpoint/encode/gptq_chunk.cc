#include "checkpoint/encode/gptq_chunk.h"

#include <algorithm>

#include "checkpoint/io/grow.h"
#include "checkpoint/io/printable.h"
#include "core/require.h"
#include "ops/factor_gram.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {
namespace {

constexpr double kDamping = 0.05;  ///< of the diagonal's mean: never worse with descent than less

/// Adds what the layer's other tokens say, one expert's matrix in memory at a time.
void add_layer(const Statistics& statistics, const GramSlot& slot, std::vector<double>& triangle) {
  std::call_once(slot.layer->once, [&] {
    double tokens = 0;
    std::vector<double>& mean = slot.layer->mean;
    mean.resize(triangle.size());
    for (const InputStatistics* expert : statistics.experts_of(*slot.statistics)) {
      const std::vector<double> h = statistics.triangle(*expert);
      std::ranges::transform(mean, h, mean.begin(), std::plus());
      tokens += expert->count;
    }
    for (double& v : mean) v /= tokens;
  });
  const double tokens = statistics.layer_tokens(*slot.statistics);
  std::ranges::transform(triangle, slot.layer->mean, triangle.begin(),
                         [&](double own, double mean) { return own + tokens * mean; });
}

}  // namespace

void fill_gram_slot(const Statistics& statistics, const std::string& backend, GramSlot& slot) {
  std::vector<double> triangle = statistics.triangle(*slot.statistics);
  if (std::ranges::all_of(triangle, [](double v) { return v == 0; })) return;
  if (slot.layer) add_layer(statistics, slot, triangle);
  try {
    slot.factor = factor_gram(slot.statistics->depth, triangle, kDamping, backend);
  } catch (const ValueError& e) {
    throw FormatError(
        fmt::format("{}: {}: {}", statistics.path().string(), printable(slot.module), e.what()));
  }
}

std::uint64_t gram_slot_bytes(std::int64_t depth) {
  return static_cast<std::uint64_t>(2 * depth * depth * dtype_size(DType::f32));
}

void add_candidates(std::span<const std::uint8_t> chosen, const double* errors,
                    const GramFactor& factor, const GlobalScale& global, Outcome& to) {
  const double divisor = static_cast<double>(global.divisor);
  const double unit = factor.mean / (divisor * divisor);
  for (const std::uint8_t c : chosen) {
    to.add_chosen({.candidate = c, .rows = 1});
    // Rounding can make nothing a little less.
    to.output.mse += unit * std::max(errors[static_cast<int>(GptqCandidate::mse)], 0.0);
    to.output.kept += unit * std::max(errors[c], 0.0);
    errors += kGptqCandidates;
  }
}

EncodedChunk encode_gptq_chunk(const LogicalTensor& tensor, const WeightSlice& slice,
                               std::int64_t row, std::int64_t rows, const GlobalScale& global,
                               const GramSlot& gram, const GptqOptions& options, Buffers& buffers) {
  const auto input = grow(buffers.input, rows * slice.cols * dtype_size(DType::f32));
  read_floats(tensor, slice, row, rows, buffers.strip, input);
  const MatrixView x(input.data(), DType::f32, rows, slice.cols);
  const QuantizedShape shape{.rows = rows, .cols = slice.cols};
  const auto codes = grow(buffers.codes, shape.code_bytes());
  const auto scales = grow(buffers.scales, shape.scale_bytes());
  const auto plain = grow(buffers.strip, shape.code_bytes() + shape.scale_bytes());
  const auto bytes = [](std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); };
  float multiplier = 0;
  const QuantizedSpan mse(shape, bytes(plain.data()), bytes(plain.data()) + shape.code_bytes(),
                          &multiplier);
  const QuantizedSpan out(shape, bytes(codes.data()), bytes(scales.data()), &multiplier);
  QuantizeOptions by_block;
  by_block.quantizer = Quantizer::mse;
  by_block.global = {&global, 1};
  by_block.backend = options.backend;
  quantize_into(x, mse, by_block);
  by_block.weights = gram.factor.weights;
  quantize_into(x, out, by_block);

  std::vector<std::uint8_t> chosen(static_cast<std::size_t>(rows));
  std::vector<double> errors(chosen.size() * kGptqCandidates);
  const GptqJob job{.gram = &gram.factor,
                    .x = reinterpret_cast<const float*>(input.data()),
                    .rows = rows,
                    .divisor = global.divisor,
                    .sweeps = options.sweeps,
                    .mse_codes = mse.codes,
                    .mse_scales = mse.scales,
                    .codes = out.codes,
                    .scales = out.scales,
                    .chosen = chosen.data(),
                    .errors = errors.data()};
  find_backend(options.backend).gptq(job, 0, rows);
  EncodedChunk chunk{codes, scales, {quantization_error(x, out, options.backend)}};
  add_candidates(chosen, errors.data(), gram.factor, global, chunk.outcome);
  return chunk;
}

}  // namespace nvfp4::checkpoint
