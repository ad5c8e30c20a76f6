#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gemm_shapes.h"
#include "nvfp4/error.h"

/// The command line of nvfp4_cuda_gemm_bench.
namespace nvfp4::bench {

/// Returns the number that all of `text` is. It must be at least 1.
inline std::int64_t parse_number(std::string_view name, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1)
    throw ValueError(fmt::format("{} = \"{}\", must be a number of at least 1", name, text));
  return number;
}

/// Returns the numbers of a text such as "1,2,3".
inline std::vector<std::int64_t> parse_numbers(std::string_view name, std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    numbers.push_back(parse_number(name, text.substr(at, comma - at)));
    at = comma + 1;
  }
  return numbers;
}

struct GemmBenchArguments {
  std::string json;  ///< JSON file; "": none
  bool each_kernel =
      false;         ///< each kernel, launched as by the cost model, not only the chosen one
  bool fp8 = false;  ///< the arithmetic of our GEMM, compared also with FP8 of cuBLASLt
  std::string architecture;  ///< architecture of the kernels; "": that of the GPU
  std::vector<std::int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  std::vector<GemmShape> shapes{std::begin(kKnownShapes), std::end(kKnownShapes)};
};

/// Returns the shapes of "4096x7168" (any shape), or of the name of a list.
inline std::vector<GemmShape> parse_shapes(std::string_view text) {
  std::vector<GemmShape> shapes;
  if (text == "known") return {std::begin(kKnownShapes), std::end(kKnownShapes)};
  if (text == "llama") return {std::begin(kLlamaShapes), std::end(kLlamaShapes)};
  for (const GemmShape& s : kModelShapes)
    if (text == "models" || text == (s.fitted ? "fitted" : "reported")) shapes.push_back(s);
  if (!shapes.empty()) return shapes;
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos)
    throw ValueError(fmt::format(
        "--shape = \"{}\", must be NxK, known, llama, models, fitted or reported", text));
  GemmShape s{parse_number("--shape: N", text.substr(0, x)),
              parse_number("--shape: K", text.substr(x + 1))};
  if (s.k % 16 != 0)
    throw ValueError(fmt::format("--shape: K = {}, must be a multiple of 16", s.k));
  return {s};
}

/// Returns the arguments after the program's name. --shape can occur several times.
inline GemmBenchArguments parse_gemm_arguments(std::span<const char* const> given) {
  GemmBenchArguments a;
  bool own_shapes = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string_view name = given[i];
    if (name != "--arch" && name != "--arithmetic" && name != "--json" && name != "--kernels" &&
        name != "--rows" && name != "--shape")
      throw ValueError(fmt::format("unknown argument {}", name));
    if (++i == given.size()) throw ValueError(fmt::format("{} needs a value", name));
    const std::string_view value = given[i];
    if (name == "--arch") {
      a.architecture = value;
    } else if (name == "--arithmetic") {
      if (value != "fp8")
        throw ValueError(fmt::format("--arithmetic = \"{}\", must be fp8", value));
      a.fp8 = true;
    } else if (name == "--json") {
      a.json = value;
    } else if (name == "--rows") {
      a.rows = parse_numbers(name, value);
    } else if (name == "--shape") {
      if (!own_shapes) a.shapes.clear();
      own_shapes = true;
      for (const GemmShape& s : parse_shapes(value)) a.shapes.push_back(s);
    } else if (value == "each") {
      a.each_kernel = true;
    } else {
      throw ValueError(fmt::format("--kernels = \"{}\", must be each", value));
    }
  }
  return a;
}

}  // namespace nvfp4::bench
