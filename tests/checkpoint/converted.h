#pragma once

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/loaded_folder.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/verify.h"

/// Converted folders, and what is right about them.
namespace nvfp4 {

inline QuantizeReport convert(const std::filesystem::path& input,
                              const std::filesystem::path& output, const std::string& to,
                              bool force = false) {
  ConvertOptions options;
  options.input = input;
  options.output = output;
  options.to = to;
  options.allow.broken_scales = force;
  return convert_checkpoint(options);
}

/// `to`: "quantize", or a form to convert to.
inline QuantizeReport quantize_or_convert(const std::filesystem::path& input,
                                          const std::filesystem::path& output,
                                          const std::string& to, bool force) {
  if (to != "quantize") return convert(input, output, to, force);
  QuantizeCheckpointOptions options = quantize_options(input, output);
  options.allow.broken_scales = force;
  return quantize_checkpoint(options);
}

inline void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const LoadedModel x(a), y(b);
  ASSERT_EQ(x.tensors.size(), y.tensors.size());
  for (const auto& [name, tensor] : x.tensors) {
    ASSERT_TRUE(y.has(name)) << name;
    EXPECT_EQ(tensor.dtype, y.at(name).dtype) << name;
    EXPECT_EQ(tensor.shape, y.at(name).shape) << name;
    EXPECT_EQ(tensor.bytes, y.at(name).bytes) << name;
  }
}

/// Returns the findings of verify, except notes, mixed groups and limits of loaders.
inline std::string findings_of(const std::filesystem::path& path) {
  VerifyOptions options;
  options.path = path;
  std::string text;
  for (const Finding& f : verify_checkpoint(options).findings)
    if (f.severity != Severity::note && f.code != "not-quantized")
      text += f.code + ": " + f.text + "\n";
  return text;
}

}  // namespace nvfp4
