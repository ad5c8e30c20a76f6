#pragma once

#include <nanobind/nanobind.h>

/// One function for each file of the module. What they bind releases the GIL while the library
/// works.
namespace nvfp4::python {

void bind_errors(nanobind::module_& m);
void bind_runtime(nanobind::module_& m);
void bind_matrix(nanobind::module_& m);
void bind_quantize(nanobind::module_& m);
void bind_activation(nanobind::module_& m);
void bind_gemm(nanobind::module_& m);
void bind_moe(nanobind::module_& m);
void bind_checkpoint(nanobind::module_& m);

}  // namespace nvfp4::python
