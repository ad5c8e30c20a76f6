#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/quantize.h"

/// Files put together tensor by tensor, right or wrong.
namespace nvfp4 {

struct Stored {
  safetensors::TensorSpec spec;
  std::vector<std::byte> bytes;
};

template <class T>
Stored stored(const std::string& name, safetensors::DType dtype, std::vector<std::int64_t> shape,
              const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{name, dtype, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

inline Stored stored_f32(const std::string& name, std::vector<std::int64_t> shape,
                         const std::vector<float>& values) {
  return stored(name, safetensors::DType::f32, std::move(shape), values);
}

inline void write_stored(const std::filesystem::path& path, const std::vector<Stored>& tensors) {
  std::vector<safetensors::TensorSpec> specs;
  for (const Stored& t : tensors) specs.push_back(t.spec);
  safetensors::Writer writer(path, specs, {{"format", "pt"}});
  for (std::size_t i = 0; i < tensors.size(); ++i) writer.write(i, 0, tensors[i].bytes);
  writer.commit();
}

/// The tensors of one ModelOpt layer. Codes and scales are row-major.
inline std::vector<Stored> modelopt_layer(const std::string& module, std::int64_t rows,
                                          std::int64_t cols, const std::vector<std::uint8_t>& codes,
                                          const std::vector<std::uint8_t>& scales, float global) {
  using enum safetensors::DType;
  return {stored(module + ".weight", u8, {rows, cols / 2}, codes),
          stored(module + ".weight_scale", f8_e4m3, {rows, cols / 16}, scales),
          stored_f32(module + ".weight_scale_2", {}, {global})};
}

inline std::vector<Stored> compressed_tensors_layer(const std::string& module, std::int64_t rows,
                                                    std::int64_t cols,
                                                    const std::vector<std::uint8_t>& codes,
                                                    const std::vector<std::uint8_t>& scales,
                                                    float divisor) {
  using enum safetensors::DType;
  return {stored(module + ".weight_packed", u8, {rows, cols / 2}, codes),
          stored(module + ".weight_scale", f8_e4m3, {rows, cols / 16}, scales),
          stored_f32(module + ".weight_global_scale", {1}, {divisor})};
}

}  // namespace nvfp4
