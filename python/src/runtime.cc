#include "nvfp4/runtime.h"

#include <nanobind/stl/string.h>

#include "arrays.h"
#include "bind.h"
#include "nvfp4/device.h"

namespace nvfp4::python {

void bind_runtime(nb::module_& m) {
  using namespace nb::literals;
  m.def("version", &version);
  m.def("threads", &threads, "Returns the number of threads of all operations.");
  m.def("set_threads", &set_threads, "count"_a,
        "Sets the number of threads. 0: NVFP4_THREADS, otherwise the CPUs that this process may "
        "use.");
  m.def(
      "set_parallel_region",
      [](std::uintptr_t function) {
        set_parallel_region(reinterpret_cast<ParallelRegion>(function));
      },
      "function"_a, "Sets the address of GOMP_parallel. 0: threads of this library.");
  m.def("backends", [] {
    nb::list all;
    for (const BackendInfo& b : backends()) {
      nb::dict d;
      d["name"] = b.name;
      d["available"] = b.available;
      d["reason"] = b.reason;
      d["description"] = b.description;
      all.append(d);
    }
    return all;
  });
  m.def("devices", [] {
    nb::list all;
    for (const DeviceInfo& gpu : cuda_devices()) {
      nb::dict d;
      d["name"] = gpu.name;
      d["device"] = device_name(gpu.device);
      d["architecture"] = gpu.architecture;
      d["available"] = gpu.available;
      d["reason"] = gpu.reason;
      all.append(d);
    }
    return all;
  });
  m.def(
      "synchronize",
      [](const std::string& device, std::uintptr_t stream) {
        const Device d = device_from_name(device);
        nb::gil_scoped_release unlocked;
        synchronize(d, stream_of(stream));
      },
      "device"_a, "stream"_a = 0);
}

}  // namespace nvfp4::python
