#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nvfp4/gemm.h"
#include "nvfp4/layers.h"
#include "nvfp4/moe.h"

/// Conversion of the caller's weights to the packed weights of a layer.
namespace nvfp4 {

/// Throws UnsupportedError if `device` has no layers, or if `autotune` is set and it has no tuning.
void require_layer_device(const char* op, Device device, bool autotune);

/// Throws ShapeError unless `w` is a matrix with N >= 1 and K % 16 == 0.
void require_weight(const char* op, const WeightView& w);

/// Throws ShapeError unless gate and up are [I, K] and down is [K, I].
void require_expert(const char* op, const ExpertWeights& e, std::int64_t k, std::int64_t i);

/// Packs one matrix for each group; all groups have one shape. A matrix consists of the group's
/// parts, whose outputs follow one another. `dense` is the quantizer of dense parts. The work is
/// complete when the call returns; a GPU is waited for once, at the end. Throws ShapeError,
/// ValueError, UnsupportedError, DeviceError.
PackedWeights pack_groups(const char* op, std::span<const std::vector<WeightView>> groups,
                          Quantizer dense, std::string_view backend, Device device,
                          std::optional<GateUp> gate_up = {});

/// Returns the scale with the larger multiplier, or none if there is no scale.
std::optional<GlobalScale> larger(const std::optional<GlobalScale>& a,
                                  const std::optional<GlobalScale>& b);
std::optional<GlobalScale> largest_input_scale(std::span<const WeightView> parts);

}  // namespace nvfp4
