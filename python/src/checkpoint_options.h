#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>

#include "nvfp4/checkpoint.h"
#include "nvfp4/error.h"

/// What the functions about whole checkpoints share.
namespace nvfp4::python {

namespace nb = nanobind;

/// Calls a Python function from whichever thread reports; none reports nothing. `callable` must
/// outlive what is returned.
inline std::function<void(const Progress&)> progress_of(const nb::object& callable) {
  if (callable.is_none()) return {};
  return [&callable](const Progress& p) {
    nb::gil_scoped_acquire locked;
    callable(p.tensor, p.tensors_done, p.tensors_total, p.bytes_done, p.bytes_total);
  };
}

inline Scheme scheme_from_name(const std::string& name) {
  if (name == "nvfp4") return Scheme::nvfp4;
  if (name == "nvfp4a16") return Scheme::nvfp4a16;
  throw ValueError("scheme = '" + name + "', must be nvfp4 or nvfp4a16");
}

}  // namespace nvfp4::python
