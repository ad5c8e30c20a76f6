#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "nvfp4/error.h"

namespace nvfp4::python {
namespace {

template <class Array>
std::string shape_text(const Array& a) {
  return fmt::format("[{}]", fmt::join(a.shape_ptr(), a.shape_ptr() + a.ndim(), ", "));
}

std::string dtype_text(nb::dlpack::dtype t) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code) { return t.code == static_cast<std::uint8_t>(code); };
  if (is(Code::Bfloat)) return "bfloat16";
  const char* kind = is(Code::Float)  ? "float"
                     : is(Code::Int)  ? "int"
                     : is(Code::UInt) ? "uint"
                                      : "unknown type of width ";
  return fmt::format("{}{}", kind, t.bits);
}

DType dtype_of(const char* name, nb::dlpack::dtype t) {
  if (t == nb::dtype<float>()) return DType::f32;
  if (t.lanes == 1 && t.bits == 16) {
    using Code = nb::dlpack::dtype_code;
    if (t.code == static_cast<std::uint8_t>(Code::Float)) return DType::f16;
    if (t.code == static_cast<std::uint8_t>(Code::Bfloat)) return DType::bf16;
    if (t.code == static_cast<std::uint8_t>(Code::UInt)) return DType::bf16;
  }
  throw nb::type_error(
      fmt::format("{}.dtype = {}, must be float32, float16 or bfloat16", name, dtype_text(t))
          .c_str());
}

template <class Array>
Device device_in(const char* name, const Array& a) {
  constexpr int kCudaHost = 3, kCudaManaged = 13;  // values of DLPack
  switch (a.device_type()) {
    case nb::device::cpu::value:
    case kCudaHost:
      return {};
    case nb::device::cuda::value:
    case kCudaManaged:
      return Device::cuda(a.device_id());
    default:
      throw UnsupportedError(fmt::format("{} is on DLPack device type {}, must be CPU or CUDA",
                                         name, a.device_type()));
  }
}

/// Returns an array [..., K] as rows, columns and a distance between rows.
template <class Array, class View, class Void>
View matrix_in(const char* name, const Array& a) {
  if (a.ndim() == 0)
    throw ShapeError(fmt::format("{} has no dimensions, must have one or more", name));
  const std::size_t last = a.ndim() - 1;
  const auto cols = static_cast<std::int64_t>(a.shape(last));
  if (a.stride(last) != 1 && cols > 1 && a.size() != 0)
    throw ShapeError(
        fmt::format("{} has shape {} and stride {} in its last dimension, must be 1: copy it", name,
                    shape_text(a), a.stride(last)));
  std::int64_t rows = 1, stride = cols;
  bool first = true;
  for (std::size_t d = last; d-- > 0;) {
    const auto n = static_cast<std::int64_t>(a.shape(d));
    if (n != 1 && a.size() != 0) {
      if (first)
        stride = a.stride(d);
      else if (a.stride(d) != stride * rows)
        throw ShapeError(fmt::format(
            "{} has shape {} and leading dimensions that are not one run of rows; copy it", name,
            shape_text(a)));
      first = false;
    }
    rows *= n;
  }
  if (rows == 0) stride = cols;
  if (stride < 0)
    throw ShapeError(fmt::format("{} has shape {} and rows {} apart, which must not be negative",
                                 name, shape_text(a), stride));
  return {static_cast<Void*>(a.data()),
          dtype_of(name, a.dtype()),
          rows,
          cols,
          stride,
          device_in(name, a)};
}

template <class T, class Array>
std::span<T> contiguous(const char* name, const Array& a) {
  using Element = std::remove_const_t<T>;
  const bool is_bytes = sizeof(Element) == 1 && a.dtype().code == kFloat8E4M3 &&
                        a.dtype().bits == 8 && a.dtype().lanes == 1;
  if (a.dtype() != nb::dtype<Element>() && !is_bytes)
    throw nb::type_error(fmt::format("{}.dtype = {}, must be {}", name, dtype_text(a.dtype()),
                                     dtype_text(nb::dtype<Element>()))
                             .c_str());
  std::int64_t expected = 1;
  for (std::size_t d = a.ndim(); d-- > 0;) {
    if (a.shape(d) != 1 && a.stride(d) != expected && a.size() != 0)
      throw ShapeError(
          fmt::format("{} has shape {} and is not contiguous, must be", name, shape_text(a)));
    expected *= static_cast<std::int64_t>(a.shape(d));
  }
  return {static_cast<T*>(a.data()), a.size()};
}

template <class Value>
Value find(std::string_view argument, std::string_view name,
           std::initializer_list<std::pair<std::string_view, Value>> known) {
  std::string names;
  for (const auto& [text, value] : known) {
    if (text == name) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", text);
  }
  throw ValueError(fmt::format("{} = '{}', must be one of {}", argument, name, names),
                   ErrorCode::not_a_choice);
}

}  // namespace

Device device_of(const char* name, const Input& a) { return device_in(name, a); }
Device device_of(const char* name, const Output& a) { return device_in(name, a); }

MatrixView matrix_of(const char* name, const Input& a) {
  return matrix_in<Input, MatrixView, const void>(name, a);
}
MatrixSpan matrix_of(const char* name, const Output& a) {
  return matrix_in<Output, MatrixSpan, void>(name, a);
}

std::span<const std::uint8_t> bytes_of(const char* name, const Input& a) {
  return contiguous<const std::uint8_t>(name, a);
}
std::span<std::uint8_t> bytes_of(const char* name, const Output& a) {
  return contiguous<std::uint8_t>(name, a);
}

std::span<const float> floats_of(const char* name, const std::optional<Input>& a) {
  return a ? contiguous<const float>(name, *a) : std::span<const float>{};
}
std::span<const std::int32_t> ints_of(const char* name, const Input& a) {
  return contiguous<const std::int32_t>(name, a);
}
std::span<float> floats_of(const char* name, const Output& a) { return contiguous<float>(name, a); }

ScaleLayout layout_from_name(std::string_view name) {
  const auto entry = [](ScaleLayout l) { return std::pair(layout_name(l), l); };
  return find(
      "layout", name,
      {entry(ScaleLayout::linear), entry(ScaleLayout::tiled_128x4), entry(ScaleLayout::tiled_8x4),
       entry(ScaleLayout::packed_row_major), entry(ScaleLayout::packed_mn_major)});
}
BlockAxis axis_from_name(std::string_view name) {
  return find<BlockAxis>("axis", name,
                         {{"rows", BlockAxis::rows}, {"columns", BlockAxis::columns}});
}
GlobalScope scope_from_name(std::string_view name) {
  return find<GlobalScope>("scope", name,
                           {{"tensor", GlobalScope::tensor}, {"vector", GlobalScope::vector}});
}

}  // namespace nvfp4::python
