#include "bind.h"

NB_MODULE(_core, m) {
  using namespace nvfp4::python;
  // Graphs of autograd that live until the process ends hold arrays: no leaks.
  nanobind::set_leak_warnings(false);
  m.doc() = "The library of the package nvfp4. Every function writes into arrays of the caller.";
  bind_errors(m);
  bind_runtime(m);
  bind_matrix(m);
  bind_quantize(m);
  bind_activation(m);
  bind_gemm(m);
  bind_moe(m);
  bind_checkpoint(m);
}
