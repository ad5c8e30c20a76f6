#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <exception>
#include <string>
#include <string_view>

#include "bind.h"
#include "checkpoint/base/error_codes.h"
#include "core/printable.h"

namespace nvfp4::python {
namespace {

namespace nb = nanobind;

/// Raises the class with this name in nvfp4/_errors.py.
void raise(const char* name, const Error& error) {
  const std::string_view what = error.what();
  try {
    // A traceback is printed to a terminal, and a message may quote a file.
    const nb::object raised = nb::module_::import_("nvfp4._errors")
                                  .attr(name)(printable(what, what.size()),
                                              nb::arg("code") = error_info(error.code).name());
    PyErr_SetObject(raised.type().ptr(), raised.ptr());
  } catch (nb::python_error& e) {
    e.restore();
  }
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ShapeError& e) {
    raise("ShapeError", e);
  } catch (const ValueError& e) {
    raise("InvalidValueError", e);
  } catch (const UnsupportedError& e) {
    raise("UnsupportedError", e);
  } catch (const DeviceError& e) {
    raise("DeviceError", e);
  } catch (const IoError& e) {
    raise("IoError", e);
  } catch (const FormatError& e) {
    raise("FormatError", e);
  } catch (const Error& e) {
    raise("Error", e);
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  nb::register_exception_translator(translate);
  nb::dict fixes;
  for (const ErrorInfo& info : error_codes()) fixes[info.name().c_str()] = info.fix;
  m.attr("fixes") = fixes;
}

}  // namespace nvfp4::python
