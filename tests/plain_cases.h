#pragma once

#include <algorithm>
#include <limits>

#include "ops/error_parts.h"
#include "placed.h"

/// Cases of the operations that are not fused with another; placed.h says how to use them.
namespace nvfp4::test {

/// Returns an ill-conditioned Hessian: X^T X of 48 rows whose channels differ by orders of
/// magnitude.
inline Matrix ill_conditioned_hessian(std::int64_t k, int block, std::uint64_t seed) {
  Matrix x = make(Fill::gaussian, 48, k, seed);
  std::mt19937_64 rng(seed);
  for (std::int64_t c = 0; c < k; ++c) {
    const float size = std::ldexp(1.0f, static_cast<int>(rng() % 15) - 7);
    for (std::int64_t t = 0; t < 48; ++t) {  // neighbours are nearly parallel
      const float shared = c % 2 != 0 ? x.view().at(t, c - 1) : 0.0f;
      set(x.span(), t, c, size * (shared + 0.01f * x.view().at(t, c)));
    }
  }
  Matrix h(DType::f32, k, block);
  gram_into(x.view(), h.span());
  return h;
}

/// Elements on thresholds of E2M1 under some scale of their block, for the global scale that is
/// measured: `largest` / 1536. Unless `largest` is 3 · 2^n the divisor is rounded, and so are the
/// products that decide.
inline Matrix tied_elements(float largest, std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                            DType dtype = DType::bf16) {
  constexpr float kThresholds[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f};
  std::mt19937_64 rng(seed);
  Matrix x(dtype, rows, cols);
  float scale = 1;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      if (c % 16 == 0) scale = E4M3{static_cast<std::uint8_t>(60 + rng() % 60)}.to_float();
      const float u = scale * kThresholds[rng() % std::size(kThresholds)];
      set(x.span(), r, c, (rng() % 2 ? u : -u) * largest / 1536);
    }
  set(x.span(), 0, 0, largest);
  return x;
}

inline Case quantize_case(std::uint64_t seed) {
  Choice choose(seed);
  struct Inputs {
    Matrix x, hessian;
    std::vector<float> weights;
    QuantizeChoice quantized;
    std::int64_t rows, cols;
  };
  const bool columns = choose.one_in(3);
  const auto vectors = choose.of<std::int64_t>({0, 1, 2, 7, 33, 129, 200});
  const auto depth = choose.of<std::int64_t>({16, 32, 48, 80, 256, 272, 1040});
  const std::int64_t rows = columns ? depth : vectors, cols = columns ? vectors : depth;
  const std::int64_t gap = choose.of<std::int64_t>({0, 0, 8, 24});
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  QuantizeChoice quantized(choose, vectors, depth);
  if (columns) quantized.options.axis = BlockAxis::columns;
  Matrix hessian;
  std::vector<float> weights;
  std::string extra;
  if (quantized.options.quantizer == Quantizer::mse && choose.one_in(2)) {
    if (choose.one_in(2)) {
      hessian = ill_conditioned_hessian(depth, quantized.options.block, seed);
      extra = " hessian";
    } else {
      std::lognormal_distribution<float> lognormal(0, 2);
      for (std::int64_t i = 0; i < depth; ++i)
        weights.push_back(choose.one_in(11) && i > 0 ? 0.0f : lognormal(choose.rng));
      extra = " weights";
    }
  }
  auto in = std::make_shared<Inputs>(Inputs{strided(fill, rows, cols, gap, seed, dtype),
                                            std::move(hessian), std::move(weights),
                                            std::move(quantized), rows, cols});
  Case c;
  c.name = fmt::format("{} {} {}{} seed {}", case_name("quantize", rows, cols, dtype, fill, gap),
                       columns ? "columns" : "rows", in->quantized.name(), extra, seed);
  c.run = [in](const Place& place) {
    Result result;
    Placed x = placed(in->x, in->cols, place.device);
    Placed hessian = placed(in->hessian, in->hessian.cols(), place.device);
    const Array<float> weights(in->weights, place.device);
    QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
    in->quantized.at(place, [&](const QuantizeOptions& options) {
      QuantizeOptions o = options;
      if (!in->weights.empty()) o.weights = weights.span();
      if (in->hessian.rows() > 0) o.hessian = hessian.span;
      quantize_into(x.span, out.span(), o);
    });
    add(result, out.view());
    return result;
  };
  return c;
}

inline Case dequantize_case(std::uint64_t seed) {
  Choice choose(seed);
  const QuantizedShape shape{
      .rows = 32 * choose.of<std::int64_t>({0, 1, 3, 9}),
      .cols = 32 * choose.of<std::int64_t>({1, 2, 9}),
      .axis = choose.of({BlockAxis::rows, BlockAxis::rows, BlockAxis::columns}),
      .block = choose.of({16, 32}),
      .layout = choose.of({ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
                           ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major}),
      .scope = choose.of({GlobalScope::tensor, GlobalScope::vector})};
  auto q = std::make_shared<QuantizedMatrix>(shape);
  // Hostile bytes: any code and any scale but NaN, whose bits are not defined.
  for (std::int64_t i = 0; i < shape.code_bytes(); ++i)
    q->codes()[i] = static_cast<std::uint8_t>(choose.rng());
  for (std::int64_t i = 0; i < shape.scale_bytes(); ++i)
    q->scales()[i] = static_cast<std::uint8_t>(choose.rng());
  for (std::int64_t i = 0; i < shape.global_count(); ++i)
    q->global_scale()[i] = std::ldexp(1.37f, static_cast<int>(choose.rng() % 60) - 40);
  const DType dtype = choose.dtype();
  const auto gap = choose.of<std::int64_t>({0, 8, 24});
  Case c;
  c.name = fmt::format("dequantize [{}, {}] axis {} block {} {} to {} gap {} seed {}", shape.rows,
                       shape.cols, static_cast<int>(shape.axis), shape.block,
                       layout_name(shape.layout), dtype_name(dtype), gap, seed);
  c.run = [=](const Place& place) {
    Result result;
    const QuantizedMatrix moved = to_device(q->view(), place.device);
    Placed out = poisoned(dtype, shape.rows, shape.cols, shape.cols + gap, place.device);
    dequantize_into(moved.view(), out.span, place.backend, place.stream);
    wait(place);
    add(result, "x", out.span);
    return result;
  };
  return c;
}

/// Real codes, or hostile ones: any scale, a NaN at times.
inline Case error_case(std::uint64_t seed) {
  Choice choose(seed);
  const bool columns = choose.one_in(3);
  const auto vectors = choose.of<std::int64_t>({0, 1, 2, 7, 31, 33, 129, 200});
  const auto depth = choose.of<std::int64_t>({16, 32, 48, 80, 256, 272, 1040, 2112});
  const std::int64_t rows = columns ? depth : vectors, cols = columns ? vectors : depth;
  const std::int64_t gap = choose.of<std::int64_t>({0, 0, 8, 24, 3});
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  QuantizeChoice quantized(choose, vectors, depth);
  if (columns) quantized.options.axis = BlockAxis::columns;
  auto x = std::make_shared<Matrix>(strided(fill, rows, cols, gap, seed, dtype));
  auto q = std::make_shared<QuantizedMatrix>(quantized.shape(rows, cols));
  MatrixView view = x->view();
  view.cols = cols;
  quantized.at(kReference, [&](const QuantizeOptions& o) { quantize_into(view, q->span(), o); });
  const bool hostile = choose.one_in(4);
  const bool any_nan = choose.one_in(4);
  const QuantizedShape& shape = q->shape();
  for (std::int64_t i = 0; hostile && i < shape.code_bytes(); ++i)
    q->codes()[i] = static_cast<std::uint8_t>(choose.rng());
  for (std::int64_t i = 0; hostile && i < shape.scale_bytes(); ++i) {
    const auto bits = static_cast<std::uint8_t>(choose.rng());
    q->scales()[i] = any_nan || (bits & 0x7F) != E4M3::kNaN ? bits : 0;
  }
  Case c;
  c.name =
      fmt::format("{} {} {}{} seed {}", case_name("error", rows, cols, dtype, fill, gap),
                  columns ? "columns" : "rows", quantized.name(), hostile ? " hostile" : "", seed);
  c.run = [=](const Place& place) {
    const QuantizedMatrix moved = to_device(q->view(), place.device);
    Placed in = placed(*x, cols, place.device);
    QuantizationError error;
    bool in_bounds = true;
    if (place.device.type == DeviceType::cpu) {
      error = quantization_error(in.span, moved.view(), place.backend);
    } else {
      const auto n = static_cast<std::size_t>(error_part_count(q->shape()));
      std::vector<QuantizationError> parts(n + 1, {-7, -7});
      Array<QuantizationError> there(parts, place.device);
      error_parts_into(in.span, moved.view(), there.data(), place.stream);
      wait(place);
      const std::vector<std::uint8_t> bytes = there.bytes();
      std::memcpy(parts.data(), bytes.data(), bytes.size());
      error = sum_parts({parts.data(), n});
      in_bounds = parts[n].squared_error == -7 && parts[n].squared_norm == -7;
    }
    Result result;
    for (double sum : {error.squared_error, error.squared_norm}) {
      if (std::isnan(sum)) sum = std::numeric_limits<double>::quiet_NaN();
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&sum);
      result.emplace_back("error", std::vector<std::uint8_t>(bytes, bytes + sizeof sum));
    }
    result.emplace_back("in bounds", std::vector<std::uint8_t>{in_bounds});
    return result;
  };
  return c;
}

inline Case amax_case(std::uint64_t seed) {
  Choice choose(seed);
  const auto rows = choose.of<std::int64_t>({0, 1, 7, 129, 300});
  const auto cols = choose.of<std::int64_t>({1, 16, 33, 272, 1040});
  const auto gap = choose.of<std::int64_t>({0, 0, 8, 24});
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  const GlobalScope scope = choose.of({GlobalScope::tensor, GlobalScope::vector});
  const BlockAxis axis = choose.of({BlockAxis::rows, BlockAxis::columns});
  const Quantizer quantizer = choose.of({Quantizer::max, Quantizer::mse});
  auto x = std::make_shared<Matrix>(strided(fill, rows, cols, gap, seed, dtype));
  Case c;
  c.name =
      fmt::format("{} scope {} axis {} seed {}", case_name("amax", rows, cols, dtype, fill, gap),
                  static_cast<int>(scope), static_cast<int>(axis), seed);
  c.run = [=](const Place& place) {
    Result result;
    const std::int64_t n = scope == GlobalScope::tensor ? 1 : axis == BlockAxis::rows ? rows : cols;
    Placed moved = placed(*x, cols, place.device);
    Placed amaxes = poisoned(DType::f32, 1, n, n, place.device);
    Array<GlobalScale> globals(std::vector<GlobalScale>(static_cast<std::size_t>(n)), place.device);
    amax_into(moved.span, amaxes.memory.data<float>(), scope, axis, place.backend, place.stream);
    global_scales_into(amaxes.memory.data<float>(), globals.data(), n, quantizer, place.device,
                       place.stream);
    wait(place);
    add(result, "amax", amaxes.span);
    result.emplace_back("globals", globals.bytes());
    return result;
  };
  return c;
}

inline Case gram_case(std::uint64_t seed) {
  Choice choose(seed);
  const int block = choose.of({16, 16, 32});
  const auto rows = choose.of<std::int64_t>({0, 1, 7, 8, 9, 129, 300});
  const std::int64_t cols = block * choose.of<std::int64_t>({1, 2, 5, 9});
  const auto gap = choose.of<std::int64_t>({0, 8, 24});
  const Fill fill = choose.of({Fill::gaussian, Fill::student, Fill::sparse, Fill::huge});
  const DType dtype = choose.dtype();
  const bool accumulate = choose.one_in(2);
  auto x = std::make_shared<Matrix>(strided(fill, rows, cols, gap, seed, dtype));
  auto before = std::make_shared<Matrix>(make(Fill::gaussian, cols, block, seed));
  Case c;
  c.name = fmt::format("{} block {}{} seed {}", case_name("gram", rows, cols, dtype, fill, gap),
                       block, accumulate ? " accumulate" : "", seed);
  c.run = [=](const Place& place) {
    Result result;
    Placed moved = placed(*x, cols, place.device);
    Placed out = accumulate ? placed(*before, block, place.device)
                            : poisoned(DType::f32, cols, block, block, place.device);
    gram_into(moved.span, out.span, accumulate, place.stream);
    wait(place);
    add(result, "gram", out.span);
    return result;
  };
  return c;
}

inline Case relayout_case(std::uint64_t seed) {
  Choice choose(seed);
  const auto layout = [&] {
    return choose.of({ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
                      ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major});
  };
  const ScaleLayout from = layout(), to = layout();
  const auto rows = choose.of<std::int64_t>({0, 1, 7, 129, 300});
  const auto blocks = choose.of<std::int64_t>({1, 3, 4, 17, 64});
  std::vector<std::uint8_t> in(static_cast<std::size_t>(scale_bytes(from, rows, blocks)), 0xFF);
  for (std::int64_t r = 0; r < rows; ++r)  // padding holds anything
    for (std::int64_t b = 0; b < blocks; ++b)
      in[static_cast<std::size_t>(scale_offset(from, r, b, rows, blocks))] =
          static_cast<std::uint8_t>(choose.rng() & 0x7F);
  Case c;
  c.name = fmt::format("relayout {} to {} [{}, {}] seed {}", layout_name(from), layout_name(to),
                       rows, blocks, seed);
  c.run = [=](const Place& place) {
    const Array<std::uint8_t> source(in, place.device);
    Array<std::uint8_t> out(
        std::vector<std::uint8_t>(static_cast<std::size_t>(scale_bytes(to, rows, blocks)), 0xAA),
        place.device);
    relayout_scales(source.span(), from, {out.data(), out.span().size()}, to, rows, blocks,
                    place.device, place.stream);
    wait(place);
    return Result{{"scales", out.bytes()}};
  };
  return c;
}

/// Groups with gaps between them, empty ones, and ends beyond the matrix.
inline Case grouped_case(std::uint64_t seed) {
  Choice choose(seed);
  struct Inputs {
    Matrix x;
    std::vector<std::int32_t> starts, ends;
    QuantizeChoice quantized;
    std::int64_t rows, cols;
  };
  const auto rows = choose.of<std::int64_t>({0, 1, 33, 129, 260});
  const auto cols = choose.of<std::int64_t>({16, 48, 272, 512});
  const auto gap = choose.of<std::int64_t>({0, 8});
  const Fill fill = choose.fill();
  const DType dtype = choose.dtype();
  auto in = std::make_shared<Inputs>(Inputs{strided(fill, rows, cols, gap, seed, dtype),
                                            {},
                                            {},
                                            QuantizeChoice(choose, rows, cols),
                                            rows,
                                            cols});
  const int groups = choose.of({1, 3, 8});
  std::int32_t row = choose.of({-3, 0, 0, 5});
  for (int g = 0; g < groups; ++g) {
    in->starts.push_back(row);
    row += static_cast<std::int32_t>(choose.rng() % static_cast<std::uint64_t>(rows + 2)) / 2;
    in->ends.push_back(row);
    row += choose.of({0, 0, 1, 20});
  }
  Case c;
  c.name = fmt::format("{} {} groups {} seed {}",
                       case_name("quantize_grouped", rows, cols, dtype, fill, gap), groups,
                       in->quantized.name(), seed);
  c.run = [in](const Place& place) {
    Result result;
    Placed x = placed(in->x, in->cols, place.device);
    const Array<std::int32_t> starts(in->starts, place.device), ends(in->ends, place.device);
    QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
    in->quantized.at(place, [&](const QuantizeOptions& o) {
      quantize_grouped_into(x.span, starts.span(), ends.span(), out.span(), o);
    });
    add(result, out.view());
    return result;
  };
  return c;
}

inline Case staging_case(std::uint64_t seed) {
  Choice choose(seed);
  struct Inputs {
    Matrix hidden;
    std::vector<std::uint8_t> ids;
    std::vector<float> weights;
    Routing routing;
    QuantizeChoice quantized;
    std::int64_t rows, cols;
  };
  const auto rows = choose.of<std::int64_t>({0, 1, 7, 129, 150, 1100});
  const auto cols = choose.of<std::int64_t>({16, 48, 272, 512});
  const auto top_k = choose.of<std::int64_t>({0, 1, 6, 8, 40});
  const auto type = static_cast<IndexType>(choose.rng() % 8);
  const DType dtype = choose.dtype();
  const std::int64_t id_stride = top_k + choose.of<std::int64_t>({0, 3});
  const std::int64_t weight_stride = top_k + choose.of<std::int64_t>({0, 1});
  QuantizeChoice quantized(choose, rows, cols);
  if (quantized.globals.empty()) quantized.options.scope = GlobalScope::vector;
  auto in = std::make_shared<Inputs>(
      Inputs{make(choose.fill(), rows, cols, seed, dtype),
             std::vector<std::uint8_t>(static_cast<std::size_t>(rows * id_stride) * 8),
             row_of(Fill::gaussian, rows * weight_stride, seed),
             {.id_type = type,
              .id_stride = id_stride,
              .weight_stride = weight_stride,
              .rows = rows,
              .top_k = top_k},
             std::move(quantized),
             rows,
             cols});
  for (std::uint8_t& byte : in->ids) byte = static_cast<std::uint8_t>(choose.rng());
  Case c;
  c.name = fmt::format("stage_moe [{}, {}] top {} ids of type {} {} {} seed {}", rows, cols, top_k,
                       static_cast<int>(type), dtype_name(dtype), in->quantized.name(), seed);
  c.run = [in](const Place& place) {
    Result result;
    const Routing& r = in->routing;
    Placed hidden = placed(in->hidden, in->cols, place.device);
    Array<std::uint8_t> ids(in->ids, place.device);
    Array<float> weights(in->weights, place.device);
    const auto n = static_cast<std::size_t>(in->rows * (r.top_k + 2));
    Array<std::int64_t> staged_ids(std::vector<std::int64_t>(n, -7), place.device);
    Array<float> staged_weights(std::vector<float>(n, -7.0f), place.device);
    QuantizedMatrix out = poisoned(in->quantized.shape(in->rows, in->cols), place.device);
    Routing routing = r;
    routing.ids = ids.data();
    routing.weights = weights.data();
    in->quantized.at(place, [&](const QuantizeOptions& o) {
      stage_moe_into(hidden.span, routing, out.span(),
                     {staged_ids.data(), r.top_k + 2, staged_weights.data(), r.top_k + 2}, o);
    });
    add(result, out.view());
    result.emplace_back("ids", staged_ids.bytes());
    result.emplace_back("weights", staged_weights.bytes());
    return result;
  };
  return c;
}

/// `count` of each operation.
inline std::vector<Case> plain_cases(std::uint64_t seed, int count) {
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i)
    for (const auto& draw : {quantize_case, dequantize_case, error_case, amax_case, gram_case,
                             relayout_case, grouped_case, staging_case})
      cases.push_back(draw(seed + static_cast<std::uint64_t>(i)));
  return cases;
}

}  // namespace nvfp4::test
