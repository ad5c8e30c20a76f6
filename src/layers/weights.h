#pragma once

#include <optional>
#include <span>

#include "nvfp4/gemm.h"
#include "nvfp4/layers.h"
#include "nvfp4/moe.h"

/// From the weights that a caller has to those that a layer keeps.
namespace nvfp4 {

/// Throws UnsupportedError unless layers run on `device`.
void require_layer_device(const char* op, Device device);

/// Throws ShapeError unless `w` is a matrix with N >= 1 and K % 16 == 0.
void require_weight(const char* op, const WeightView& w);

/// Throws ShapeError unless gate and up are [I, K] and down is [K, I].
void require_expert(const char* op, const ExpertWeights& e, std::int64_t k, std::int64_t i);

/// The outputs of the parts, one after the other. `dense`: how dense ones are quantized. Throws
/// ShapeError, ValueError, UnsupportedError.
PackedWeights pack_parts(const char* op, std::span<const WeightView> parts, Quantizer dense,
                         std::string_view backend);

/// The one with the larger multiplier, if there is one.
std::optional<GlobalScale> larger(const std::optional<GlobalScale>& a,
                                  const std::optional<GlobalScale>& b);
std::optional<GlobalScale> largest_input_scale(std::span<const WeightView> parts);

}  // namespace nvfp4
