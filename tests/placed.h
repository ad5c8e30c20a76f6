#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nvfp4/activation.h"
#include "test_matrices.h"

/// Operations that run anywhere. A Case holds its inputs on the CPU; run() moves them to a place,
/// runs the operation there on poisoned outputs, and brings the bytes back. A backend is right if
/// its bytes are those of the reference:
///
///     for (const Case& c : plain_cases(seed))  // or norm_cases, mix_cases, swiglu_cases
///       EXPECT_EQ(difference(c.run({.device = Device::cuda()}), c.run(kReference)), "") << c.name;
namespace nvfp4::test {

inline const Device kGpu = Device::cuda();

struct Place {
  std::string backend = {};  ///< of the CPU
  Device device = {};
  Stream stream = {};
};
inline const Place kReference{.backend = "reference"};

/// Returns the start of the name of a case.
inline std::string case_name(std::string_view operation, std::int64_t rows, std::int64_t cols,
                             DType dtype, Fill fill, std::int64_t gap) {
  return fmt::format("{} [{}, {}] {} fill {} gap {}", operation, rows, cols, dtype_name(dtype),
                     static_cast<int>(fill), gap);
}

/// Named parts of a result, as bytes.
using Result = std::vector<std::pair<std::string, std::vector<std::uint8_t>>>;

struct Case {
  std::string name;
  std::function<Result(const Place&)> run;
};

/// A fused operation. `fused` and `chain` must agree on every place: the chain stores FP32 rows and
/// then quantizes them. `stored` rounds the rows to another type.
struct FusedCase {
  std::string name;
  std::function<Result(const Place&)> fused, chain, stored;
};

/// "" if they agree, else what differs first.
inline std::string difference(const Result& got, const Result& want) {
  if (got.size() != want.size()) return "number of parts";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto& [name, bytes] = want[i];
    if (got[i].first != name) return got[i].first + " is not " + name;
    if (got[i].second.size() != bytes.size()) return "size of " + name;
    for (std::size_t j = 0; j < bytes.size(); ++j)
      if (got[i].second[j] != bytes[j])
        return fmt::format("{}: byte {} of {} is {}, not {}", name, j, bytes.size(),
                           got[i].second[j], bytes[j]);
  }
  return "";
}

/// A matrix at a place; rows may be further apart than `view.cols`.
struct Placed {
  Matrix memory;
  MatrixSpan span;
};
inline Placed placed(const Matrix& host, std::int64_t cols, Device device) {
  Placed p{to_device(host.view(), device), {}};
  p.span = p.memory.span();
  p.span.cols = cols;
  return p;
}
/// Memory for a result, every byte 0xAA.
inline Placed poisoned(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                       Device device) {
  Matrix host(dtype, rows, stride);
  if (rows * stride > 0)
    std::memset(host.data<char>(), 0xAA,
                static_cast<std::size_t>(rows * stride * dtype_size(dtype)));
  return placed(host, cols, device);
}
inline QuantizedMatrix poisoned(const QuantizedShape& shape, Device device) {
  QuantizedMatrix host(shape);
  const auto fill = [](void* to, std::int64_t bytes) {
    if (bytes > 0) std::memset(to, 0xAA, static_cast<std::size_t>(bytes));
  };
  fill(host.codes(), shape.code_bytes());
  fill(host.scales(), shape.scale_bytes());
  fill(host.global_scale(), 4 * shape.global_count());
  return to_device(host.view(), device);
}

/// An array at a place.
template <class T>
class Array {
 public:
  Array(const std::vector<T>& host, Device device)
      : size_(host.size()), memory_(to_device(padded(host).view(), device)) {}
  T* data() { return static_cast<T*>(memory_.template data<void>()); }
  std::span<const T> span() const {
    return {static_cast<const T*>(memory_.template data<void>()), size_};
  }
  std::vector<std::uint8_t> bytes() const {
    const Matrix host = to_device(memory_.view(), {});
    return {host.data<std::uint8_t>(), host.data<std::uint8_t>() + size_ * sizeof(T)};
  }

 private:
  static Matrix padded(const std::vector<T>& host) {
    Matrix m(DType::f32, 1, ceil_div(static_cast<std::int64_t>(host.size() * sizeof(T)), 4) + 1);
    if (!host.empty()) std::memcpy(m.data<char>(), host.data(), host.size() * sizeof(T));
    return m;
  }
  std::size_t size_;
  Matrix memory_;
};

inline void wait(const Place& place) {
  if (place.device.type == DeviceType::cuda) synchronize(place.device, place.stream);
}

/// The bits of a NaN in an FP32 result are not defined.
inline void add(Result& result, const std::string& name, const MatrixView& m) {
  const Matrix host = to_device(m, {});
  std::vector<std::uint8_t> bytes(
      static_cast<std::size_t>(host.rows() * host.cols() * dtype_size(m.dtype)));
  if (!bytes.empty()) std::memcpy(bytes.data(), host.data<char>(), bytes.size());
  for (std::size_t i = 0; m.dtype == DType::f32 && i < bytes.size(); i += 4) {
    std::uint32_t u;
    std::memcpy(&u, bytes.data() + i, 4);
    if ((u & 0x7FFFFFFF) > 0x7F800000) u = 0x7FFFFFFF;
    std::memcpy(bytes.data() + i, &u, 4);
  }
  result.emplace_back(name, std::move(bytes));
}
inline void add(Result& result, const QuantizedView& q) {
  const QuantizedMatrix host = to_device(q, {});
  const QuantizedShape& s = host.shape();
  const auto part = [&](const char* name, const void* data, std::int64_t bytes) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    result.emplace_back(name, std::vector<std::uint8_t>(p, p + bytes));
  };
  part("codes", host.codes(), s.code_bytes());
  part("scales", host.scales(), s.scale_bytes());
  part("global_scale", host.global_scale(), 4 * s.global_count());
}

/// Seeded choices.
struct Choice {
  std::mt19937_64 rng;

  explicit Choice(std::uint64_t seed) : rng(seed) {}
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[rng() % list.size()];
  }
  bool one_in(std::uint64_t n) { return rng() % n == 0; }
  DType dtype() { return of({DType::f32, DType::bf16, DType::f16}); }
  Fill fill() { return kFills[rng() % std::size(kFills)]; }
};

/// A matrix whose rows may be `gap` elements apart. The gap is full of NaN.
inline Matrix strided(Fill fill, std::int64_t rows, std::int64_t cols, std::int64_t gap,
                      std::uint64_t seed, DType dtype) {
  const Matrix dense = make(fill, rows, cols, seed, dtype);
  Matrix m(dtype, rows, cols + gap);
  MatrixSpan part = m.span();
  part.cols = cols;
  copy(dense.view(), part);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = cols; c < cols + gap; ++c) set(m.span(), r, c, NAN);
  return m;
}

inline std::vector<float> row_of(Fill fill, std::int64_t n, std::uint64_t seed) {
  const Matrix m = make(fill, 1, n, seed);
  return {m.data<float>(), m.data<float>() + n};
}

/// Options for a result of [rows, cols], with any given global scales on the CPU.
struct QuantizeChoice {
  QuantizeOptions options;
  std::vector<GlobalScale> globals;
  bool globals_stay = false;  ///< a single one may remain on the host

  QuantizeChoice(Choice& choose, std::int64_t rows, std::int64_t cols) {
    options.quantizer =
        choose.of({Quantizer::max, Quantizer::max, Quantizer::four_over_six, Quantizer::mse});
    if (options.quantizer == Quantizer::mse && rows * cols > 20'000)
      options.quantizer = Quantizer::max;
    if (options.quantizer != Quantizer::max && cols % 32 == 0 && choose.one_in(3))
      options.block = 32;
    options.layout = choose.of({ScaleLayout::linear, ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                ScaleLayout::tiled_8x4, ScaleLayout::packed_row_major,
                                ScaleLayout::packed_mn_major});
    options.scope = choose.of({GlobalScope::tensor, GlobalScope::vector, GlobalScope::vector});
    if (choose.one_in(3)) {
      const auto n = options.scope == GlobalScope::tensor ? 1 : static_cast<std::size_t>(rows);
      for (std::size_t i = 0; i < n; ++i)
        globals.push_back(GlobalScale::from_multiplier(
            std::ldexp(1.0f + 1e-3f * static_cast<float>(choose.rng() % 1000),
                       static_cast<int>(choose.rng() % 16) - 12)));
      globals_stay = n == 1 && choose.one_in(2);
    }
  }

  QuantizedShape shape(std::int64_t rows, std::int64_t cols) const {
    return {.rows = rows,
            .cols = cols,
            .axis = options.axis,
            .block = options.block,
            .layout = options.layout,
            .scope = options.scope};
  }
  std::string name() const {
    return fmt::format("{} block {} {} {} {}", quantizer_name(*options.quantizer), options.block,
                       layout_name(options.layout),
                       options.scope == GlobalScope::tensor ? "tensor" : "vector",
                       globals.empty() ? "measured"
                       : globals_stay  ? "given on the host"
                                       : "given");
  }
  /// Calls f with the options for a place.
  template <class F>
  void at(const Place& place, F&& f) const {
    QuantizeOptions o = options;
    o.backend = place.backend;
    o.stream = place.stream;
    const Array<GlobalScale> moved(globals, globals_stay ? Device{} : place.device);
    if (!globals.empty())
      o.global = {moved.span().data(), globals.size(), globals_stay ? Device{} : place.device};
    f(static_cast<const QuantizeOptions&>(o));
    wait(place);
  }
};

}  // namespace nvfp4::test
