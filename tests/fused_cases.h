#pragma once

#include <algorithm>

#include "placed.h"

/// Cases of the operations that are fused with quantization; placed.h says how to use them.
namespace nvfp4::test {

struct RowsAndCols {
  std::int64_t rows, cols;
};
/// Odd sizes; rows of several lengths between powers of two, for the tree of the norm. `many`: more
/// rows than a GPU has multiprocessors, or than it works on at a time.
inline RowsAndCols odd_shape(Choice& choose, bool many) {
  if (many) {
    const std::int64_t rows = choose.of<std::int64_t>({133, 150, 300, 2500});
    const std::int64_t cols =
        rows > 1000 ? choose.of<std::int64_t>({16, 48, 272, 528})
                    : choose.of<std::int64_t>({32, 272, 1040, 2048, 4112, 7168, 16400});
    return {rows, cols};
  }
  const std::int64_t rows = choose.of<std::int64_t>({0, 1, 1, 2, 7, 33, 129});
  const std::int64_t cols =
      rows > 32 ? choose.of<std::int64_t>({16, 48, 272, 512})
                : choose.of<std::int64_t>({16, 32, 48, 80, 256, 272, 1040, 2048, 4112, 7168});
  return {rows, cols};
}
/// Quantizes FP32 rows that some operation stored.
inline void quantize_stored(const QuantizeChoice& quantized, const Placed& y, const Place& place,
                            Result& result) {
  QuantizedMatrix out = poisoned(quantized.shape(y.span.rows, y.span.cols), place.device);
  quantized.at(place, [&](const QuantizeOptions& o) { quantize_into(y.span, out.span(), o); });
  add(result, out.view());
}

inline FusedCase norm_case(std::uint64_t seed, bool many) {
  Choice choose(seed);
  const auto [rows, cols] = odd_shape(choose, many);
  struct Inputs {
    Matrix x, residual;
    std::vector<float> weight;
    RmsNormOptions norm;
    QuantizeChoice quantized;
    DType residual_dtype, y_dtype;
    std::int64_t rows, cols, gap;
    bool has_residual, in_place, wants_rstd;
  };
  const Fill fill = choose.fill(), weight_fill = choose.of({Fill::gaussian, Fill::student});
  const DType dtype = choose.dtype();
  const std::int64_t gap = choose.of<std::int64_t>({0, 0, 8, 24});
  const bool in_place = choose.one_in(3);
  const DType residual_in = choose.dtype();
  auto in = std::make_shared<Inputs>(
      Inputs{strided(fill, rows, cols, gap, seed, dtype),
             strided(choose.of({Fill::gaussian, fill}), rows, cols, gap, seed + 1, residual_in),
             row_of(weight_fill, cols, seed),
             {.eps = choose.of({0.0f, 1e-6f, 1e-2f}),
              .intermediate = choose.of({DType::f32, DType::f32, DType::bf16, DType::f16})},
             QuantizeChoice(choose, rows, cols),
             in_place ? residual_in : choose.dtype(),
             choose.dtype(),
             rows,
             cols,
             gap,
             choose.one_in(2),
             in_place,
             choose.one_in(2)});

  /// Places the inputs, calls f(x, weight, norm, result), and adds what else the norm gives.
  const auto run = [in](const Place& place, auto&& f) {
    Result result;
    Placed x = placed(in->x, in->cols, place.device);
    Placed residual = placed(in->residual, in->cols, place.device);
    Placed residual_out =
        poisoned(in->residual_dtype, in->rows, in->cols, in->cols + in->gap, place.device);
    Placed rstd = poisoned(DType::f32, in->rows, 1, 1, place.device);
    const Array<float> weight(in->weight, place.device);
    RmsNormOptions norm = in->norm;
    const MatrixSpan new_residual = in->in_place ? residual.span : residual_out.span;
    if (in->has_residual) {
      norm.residual = residual.span;
      norm.residual_out = new_residual;
    }
    if (in->wants_rstd) norm.rstd = rstd.memory.data<float>();
    f(x.span, weight.span(), norm, result);
    if (in->has_residual) add(result, "residual", new_residual);
    if (in->wants_rstd) add(result, "rstd", rstd.span);
    return result;
  };
  const auto store = [in](const Place& place, DType dtype, const MatrixSpan& x,
                          std::span<const float> weight, const RmsNormOptions& norm) {
    Placed y = poisoned(dtype, in->rows, in->cols, in->cols + in->gap, place.device);
    rms_norm_into(x, weight, y.span, norm, {.backend = place.backend, .stream = place.stream});
    wait(place);
    return y;
  };
  FusedCase c;
  c.name = fmt::format("{} eps {} intermediate {}{} {} seed {}",
                       case_name("rms_norm", rows, cols, dtype, fill, gap), in->norm.eps,
                       dtype_name(in->norm.intermediate),
                       !in->has_residual ? ""
                       : in_place ? fmt::format(" residual {} in place", dtype_name(residual_in))
                                  : fmt::format(" residual {} to {}", dtype_name(residual_in),
                                                dtype_name(in->residual_dtype)),
                       in->quantized.name(), seed);
  c.fused = [=](const Place& place) {
    return run(place, [&](auto& x, auto weight, auto& norm, Result& result) {
      QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
      in->quantized.at(place, [&](const QuantizeOptions& o) {
        rms_norm_quantize_into(x, weight, out.span(), norm, o);
      });
      add(result, out.view());
    });
  };
  c.chain = [=](const Place& place) {
    return run(place, [&](auto& x, auto weight, auto& norm, Result& result) {
      quantize_stored(in->quantized, store(place, DType::f32, x, weight, norm), place, result);
    });
  };
  c.stored = [=](const Place& place) {
    return run(place, [&](auto& x, auto weight, auto& norm, Result& result) {
      add(result, "y", store(place, in->y_dtype, x, weight, norm).span);
    });
  };
  return c;
}

inline FusedCase mix_case(std::uint64_t seed, bool many) {
  Choice choose(seed);
  const auto [rows, cols] = odd_shape(choose, many);
  struct Inputs {
    Matrix x, mix;
    std::vector<float> weight;
    RmsNormOptions norm;
    QuantizeChoice quantized;
    DType y_dtype;
    std::int64_t rows, cols, streams, gap;
    bool wants_rstd;
  };
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  const std::int64_t gap = choose.of<std::int64_t>({0, 0, 16});
  const auto streams = static_cast<std::int64_t>(1 + choose.rng() % 4);
  auto in = std::make_shared<Inputs>(
      Inputs{strided(fill, rows, streams * cols, gap, seed, dtype),
             strided(Fill::gaussian, rows, streams, gap / 4, seed + 1, DType::f32),
             row_of(Fill::gaussian, cols, seed),
             {.eps = 1e-6f, .intermediate = choose.of({DType::f32, DType::f32, DType::bf16})},
             QuantizeChoice(choose, rows, cols),
             choose.dtype(),
             rows,
             cols,
             streams,
             gap,
             choose.one_in(2)});
  const auto run = [in](const Place& place, auto&& f) {
    Result result;
    Placed x = placed(in->x, in->streams * in->cols, place.device);
    Placed mix = placed(in->mix, in->streams, place.device);
    Placed rstd = poisoned(DType::f32, in->rows, 1, 1, place.device);
    const Array<float> weight(in->weight, place.device);
    RmsNormOptions norm = in->norm;
    if (in->wants_rstd) norm.rstd = rstd.memory.data<float>();
    f(x.span, mix.span, weight.span(), norm, result);
    if (in->wants_rstd) add(result, "rstd", rstd.span);
    return result;
  };
  const auto store = [in](const Place& place, DType dtype, const MatrixSpan& x,
                          const MatrixSpan& mix) {
    Placed y = poisoned(dtype, in->rows, in->cols, in->cols + in->gap, place.device);
    mix_streams_into(x, mix, y.span, {.backend = place.backend, .stream = place.stream});
    wait(place);
    return y;
  };
  FusedCase c;
  c.name = fmt::format("{} {} streams intermediate {} {} seed {}",
                       case_name("mix_rms_norm", rows, cols, dtype, fill, gap), streams,
                       dtype_name(in->norm.intermediate), in->quantized.name(), seed);
  c.fused = [=](const Place& place) {
    return run(place, [&](auto& x, auto& mix, auto weight, auto& norm, Result& result) {
      QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
      in->quantized.at(place, [&](const QuantizeOptions& o) {
        mix_rms_norm_quantize_into(x, mix, weight, out.span(), norm, o);
      });
      add(result, out.view());
    });
  };
  c.chain = [=](const Place& place) {
    return run(place, [&](auto& x, auto& mix, auto weight, auto& norm, Result& result) {
      const Placed mixed = store(place, DType::f32, x, mix);
      Placed y = poisoned(DType::f32, in->rows, in->cols, in->cols, place.device);
      rms_norm_into(mixed.span, weight, y.span, norm,
                    {.backend = place.backend, .stream = place.stream});
      wait(place);
      quantize_stored(in->quantized, y, place, result);
    });
  };
  c.stored = [=](const Place& place) {
    Result result;
    Placed x = placed(in->x, in->streams * in->cols, place.device);
    Placed mix = placed(in->mix, in->streams, place.device);
    add(result, "y", store(place, in->y_dtype, x.span, mix.span).span);
    return result;
  };
  return c;
}

inline FusedCase swiglu_case(std::uint64_t seed, bool many) {
  Choice choose(seed);
  const auto [rows, cols] = odd_shape(choose, many);
  struct Inputs {
    Matrix x;
    SwigluOptions swiglu;
    QuantizeChoice quantized;
    DType y_dtype;
    std::int64_t rows, cols, gap;
  };
  // gaussian · 8 would hardly leave [-104, 89], the range of the exponential; huge does.
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  const std::int64_t gap = choose.of<std::int64_t>({0, 0, 32});
  SwigluOptions swiglu{.interleave = choose.of({0, 0, 8, 8, 1, 2, 4, 16, 32})};
  if (cols % std::max(1, swiglu.interleave) != 0) swiglu.interleave = 8;
  if (choose.one_in(3)) swiglu.limit = choose.of({0.5f, 7.0f, 10.0f});
  auto in = std::make_shared<Inputs>(Inputs{strided(fill, rows, 2 * cols, gap, seed, dtype), swiglu,
                                            QuantizeChoice(choose, rows, cols), choose.dtype(),
                                            rows, cols, gap});
  const auto store = [in](const Place& place, DType dtype) {
    Placed x = placed(in->x, 2 * in->cols, place.device);
    Placed y = poisoned(dtype, in->rows, in->cols, in->cols + in->gap, place.device);
    swiglu_into(x.span, y.span, in->swiglu, {.backend = place.backend, .stream = place.stream});
    wait(place);
    return y;
  };
  FusedCase c;
  c.name = fmt::format("{} interleave {} limit {} {} seed {}",
                       case_name("swiglu", rows, cols, dtype, fill, gap), swiglu.interleave,
                       swiglu.limit, in->quantized.name(), seed);
  c.fused = [=](const Place& place) {
    Result result;
    Placed x = placed(in->x, 2 * in->cols, place.device);
    QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
    in->quantized.at(place, [&](const QuantizeOptions& o) {
      swiglu_quantize_into(x.span, out.span(), in->swiglu, o);
    });
    add(result, out.view());
    return result;
  };
  c.chain = [=](const Place& place) {
    Result result;
    quantize_stored(in->quantized, store(place, DType::f32), place, result);
    return result;
  };
  c.stored = [=](const Place& place) {
    Result result;
    add(result, "y", store(place, in->y_dtype).span);
    return result;
  };
  return c;
}

/// `count` of each operation.
inline std::vector<FusedCase> fused_cases(std::uint64_t seed, int count, bool many = false) {
  std::vector<FusedCase> cases;
  for (int i = 0; i < count; ++i)
    for (const auto& draw : {norm_case, mix_case, swiglu_case})
      cases.push_back(draw(seed + static_cast<std::uint64_t>(i), many));
  return cases;
}

}  // namespace nvfp4::test
