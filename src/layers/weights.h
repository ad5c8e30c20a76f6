#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nvfp4/gemm.h"
#include "nvfp4/layers.h"
#include "nvfp4/moe.h"

/// From the weights that a caller has to those that a layer keeps.
namespace nvfp4 {

/// Throws UnsupportedError unless layers run on `device`, and products are tuned there if asked
/// for.
void require_layer_device(const char* op, Device device, bool autotune);

/// Throws ShapeError unless `w` is a matrix with N >= 1 and K % 16 == 0.
void require_weight(const char* op, const WeightView& w);

/// Throws ShapeError unless gate and up are [I, K] and down is [K, I].
void require_expert(const char* op, const ExpertWeights& e, std::int64_t k, std::int64_t i);

/// One matrix for each group, of that group's parts, whose outputs follow one another: all groups
/// of one shape. `dense`: how dense parts are quantized. Complete when the call returns; on a GPU
/// it waits once, at the end. Throws ShapeError, ValueError, UnsupportedError, DeviceError.
PackedWeights pack_groups(const char* op, std::span<const std::vector<WeightView>> groups,
                          Quantizer dense, std::string_view backend, Device device,
                          std::optional<GateUp> gate_up = {});

/// The one with the larger multiplier, if there is one.
std::optional<GlobalScale> larger(const std::optional<GlobalScale>& a,
                                  const std::optional<GlobalScale>& b);
std::optional<GlobalScale> largest_input_scale(std::span<const WeightView> parts);

}  // namespace nvfp4
