#include "nvfp4/matrix.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "nvfp4/error.h"

namespace nvfp4::python {
namespace {

using namespace nb::literals;

nb::dlpack::dtype dtype_from_name(const std::string& name) {
  using Code = nb::dlpack::dtype_code;
  if (name == "uint8") return nb::dtype<std::uint8_t>();
  if (name == "float32") return nb::dtype<float>();
  if (name == "float16") return {static_cast<std::uint8_t>(Code::Float), 16, 1};
  if (name == "bfloat16") return {static_cast<std::uint8_t>(Code::Bfloat), 16, 1};
  if (name == "float8_e4m3fn") return {kFloat8E4M3, 8, 1};
  throw ValueError("dtype = '" + name + "', cannot be allocated");
}

/// Returns memory of the library as an array for DLPack. JAX needs it, because its own arrays are
/// read only.
nb::ndarray<nb::array_api> allocate(const std::vector<std::size_t>& shape, const std::string& dtype,
                                    const std::string& device_text) {
  const nb::dlpack::dtype type = dtype_from_name(dtype);
  const Device device = device_from_name(device_text);
  std::size_t bytes = type.bits / 8;
  for (const std::size_t n : shape) bytes *= n;
  auto owned = std::make_unique<Buffer>(static_cast<std::int64_t>(bytes), device);
  void* const data = owned->data();
  const nb::capsule owner(owned.get(),
                          [](void* buffer) noexcept { delete static_cast<Buffer*>(buffer); });
  owned.release();  // NOLINT: the capsule owns it
  const int kind =
      device.type == DeviceType::cuda ? nb::device::cuda::value : nb::device::cpu::value;
  return {data, shape.size(), shape.data(), owner, nullptr, type, kind, device.index};
}

}  // namespace

void bind_matrix(nb::module_& m) {
  m.def("allocate", &allocate, "shape"_a, "dtype"_a, "device"_a = "cpu", "Zeros.");
}

}  // namespace nvfp4::python
