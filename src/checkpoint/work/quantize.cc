#include "checkpoint/io/grow.h"
#include "checkpoint/work/work.h"
#include "quantizers/gptq.h"

namespace nvfp4::checkpoint {

GlobalScale QuantizeWork::global_scale(const GroupFacts& group) const {
  if (!output().has_global) return {};
  const auto& [amax, rule, copied] = group;
  const GlobalScale least = GlobalScale::from_amax(amax, Quantizer::max);
  if (copied && copied->multiplier >= (amax == 0 ? 0 : least.multiplier)) return *copied;
  const GlobalScale scale = GlobalScale::from_amax(amax, rule);
  return scale.multiplier < 1 || amax == 0 ? scale : least;  // verify refuses those from 1 on
}

EncodedChunk QuantizeWork::encode(const MatrixRows& of, const RowsMethod& method,
                                  Buffers& buffers) const {
  const std::int64_t rows = of.rows, cols = of.slice.cols;
  const bool by_gram = method.gram != nullptr;
  const DType dtype = by_gram ? DType::f32 : read_dtype(of.source);
  const auto input = grow(buffers.input, rows * cols * dtype_size(dtype));
  (by_gram ? read_floats : read_rows)(of, buffers.strip, input);
  const MatrixView x(input.data(), dtype, rows, cols);
  const QuantizedShape shape{.rows = rows, .cols = cols};
  const auto codes = grow(buffers.codes, shape.code_bytes());
  const auto scales = grow(buffers.scales, shape.scale_bytes());
  const auto bytes = [](std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); };
  float global = 0;
  const QuantizedSpan out(shape, bytes(codes.data()), bytes(scales.data()), &global);
  RowsRoom room{.channels = method.channels()};
  std::vector<std::uint8_t> chosen;
  std::vector<double> errors;
  if (by_gram) {
    room.mse_codes = bytes(grow(buffers.strip, shape.code_bytes() + shape.scale_bytes()).data());
    room.mse_scales = room.mse_codes + shape.code_bytes();
    chosen.resize(static_cast<std::size_t>(rows));
    errors.resize(chosen.size() * std::size_t{kGptqCandidates});
    room.chosen = chosen.data();
    room.errors = errors.data();
  }
  quantize_rows(x, out, method, room);
  EncodedChunk chunk{codes, scales, {quantization_error(x, out, method.backend)}};
  if (by_gram)
    add_candidates(chosen, errors.data(), method.gram->factor, method.global, chunk.outcome);
  return chunk;
}

double QuantizeWork::error_with_global(const MatrixRows& of, RowsMethod method,
                                       Buffers& buffers) const {
  const auto values = grow(buffers.input, of.rows * of.slice.cols * dtype_size(DType::f32));
  read_floats(of, buffers.strip, values);
  const MatrixView x(values.data(), DType::f32, of.rows, of.slice.cols);
  const float amax = find_backend(method.backend).amax(x, 0, of.rows).amax;
  method.global = GlobalScale::from_amax(amax, method.quantizer);
  return encode(of, method, buffers).outcome.error.squared_error;
}

double QuantizeWork::weighted_error(const MatrixRows& rows, const EncodedChunk& chunk, float global,
                                    std::span<const double> squares) const {
  const std::int64_t cols = rows.slice.cols;
  return sum_weighted(rows, squares, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t i = r * cols + c;
    const auto pair = std::to_integer<unsigned>(chunk.codes[static_cast<std::size_t>(i / 2)]);
    const E2M1 code{static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4)};
    const E4M3 scale{
        std::to_integer<std::uint8_t>(chunk.scales[static_cast<std::size_t>(i / kBlock)])};
    return double{code.to_float()} * double{scale.to_float()} * double{global};
  });
}

}  // namespace nvfp4::checkpoint
