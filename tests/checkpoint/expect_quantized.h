#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/tiny_model.h"
#include "nvfp4/quantize.h"

namespace nvfp4 {

/// The tensors of a group in the output, held against quantize() of the whole input tensors with
/// one global scale.
inline void expect_quantized(const LoadedModel& in, const LoadedModel& out,
                             const std::vector<std::string>& group, Quantizer quantizer,
                             const GlobalScale& global, bool modelopt = true) {
  for (const std::string& name : group) {
    const QuantizedMatrix expected =
        quantize(in.matrix(name + ".weight"), {.quantizer = quantizer, .global = {&global, 1}});
    const QuantizedShape& shape = expected.shape();
    const auto& codes = out.at(name + (modelopt ? ".weight" : ".weight_packed"));
    EXPECT_EQ(codes.dtype, safetensors::DType::u8);
    EXPECT_EQ(codes.shape, (std::vector<std::int64_t>{shape.rows, shape.cols / 2})) << name;
    EXPECT_EQ(std::memcmp(codes.bytes.data(), expected.codes(), codes.bytes.size()), 0) << name;
    const auto& scales = out.at(name + ".weight_scale");
    EXPECT_EQ(scales.dtype, safetensors::DType::f8_e4m3);
    EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{shape.rows, shape.cols / 16})) << name;
    EXPECT_EQ(std::memcmp(scales.bytes.data(), expected.scales(), scales.bytes.size()), 0) << name;
    if (modelopt) {
      EXPECT_EQ(out.scalar(name + ".weight_scale_2"), global.multiplier) << name;
      EXPECT_TRUE(out.at(name + ".weight_scale_2").shape.empty());
    } else {
      EXPECT_EQ(out.scalar(name + ".weight_global_scale"), global.divisor) << name;
      EXPECT_EQ(out.at(name + ".weight_global_scale").shape, std::vector<std::int64_t>{1});
    }
  }
}

inline float amax_of(const LoadedModel& in, const std::vector<std::string>& group) {
  float largest = 0;
  for (const std::string& name : group)
    largest = std::max(largest, amax(in.matrix(name + ".weight")));
  return largest;
}

/// The same, with the global scale of the group's amax.
inline void expect_quantized(const LoadedModel& in, const LoadedModel& out,
                             const std::vector<std::string>& group, Quantizer quantizer,
                             bool modelopt = true) {
  expect_quantized(in, out, group, quantizer, GlobalScale::from_amax(amax_of(in, group), quantizer),
                   modelopt);
}

}  // namespace nvfp4
