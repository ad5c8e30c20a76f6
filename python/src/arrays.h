#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "nvfp4/matrix.h"

/// Arrays of NumPy, PyTorch, CuPy, JAX …, by DLPack or the buffer protocol, as views of the
/// library. Nothing is copied. uint16 stands for the bits of bfloat16, which NumPy cannot export.
namespace nvfp4::python {

namespace nb = nanobind;

using Input = nb::ndarray<nb::ro>;  ///< any framework, dtype, shape and device; read only
using Output = nb::ndarray<>;       ///< the same, but writable

inline constexpr std::uint8_t kFloat8E4M3 = 10;  ///< DLPack's kDLFloat8_e4m3fn

Device device_of(const char* name, const Input& a);
Device device_of(const char* name, const Output& a);

/// Returns a view of [..., K] as [product of the other dimensions, K]. One dimension is one row.
/// Rows may have a stride, elements may not. Throws ShapeError, nb::type_error.
MatrixView matrix_of(const char* name, const Input& a);
MatrixSpan matrix_of(const char* name, const Output& a);

/// Returns the bytes of a contiguous uint8 or float8_e4m3fn array of any shape.
std::span<const std::uint8_t> bytes_of(const char* name, const Input& a);
std::span<std::uint8_t> bytes_of(const char* name, const Output& a);

/// Returns the values of a contiguous float32 array of any shape. No array is an empty span.
std::span<const float> floats_of(const char* name, const std::optional<Input>& a);
std::span<float> floats_of(const char* name, const Output& a);

/// Returns the values of a contiguous int32 array of any shape.
std::span<const std::int32_t> ints_of(const char* name, const Input& a);

/// Returns the layout with this name, as in layout_name(). Throws ValueError, which lists the known
/// names.
ScaleLayout layout_from_name(std::string_view name);
BlockAxis axis_from_name(std::string_view name);
GlobalScope scope_from_name(std::string_view name);

/// Returns the pointer of an address that Python gave.
template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

/// Returns a cudaStream_t from the integer of a framework.
inline Stream stream_of(std::uintptr_t handle) { return {reinterpret_cast<void*>(handle)}; }

}  // namespace nvfp4::python
