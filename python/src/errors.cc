#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "bind.h"
#include "nvfp4/error.h"
#include "nvfp4/error_codes.h"
#include "nvfp4/printable.h"

namespace nvfp4::python {
namespace {

namespace nb = nanobind;

/// Raises the class of that name in nvfp4/_errors.py.
void raise(const char* name, std::string_view what) {
  // A traceback goes to a terminal, and a message may quote a file.
  const std::string text = printable(what, what.size());
  try {
    const nb::object type = nb::module_::import_("nvfp4._errors").attr(name);
    PyErr_SetString(type.ptr(), text.c_str());
  } catch (nb::python_error& e) {
    e.restore();
  }
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ShapeError& e) {
    raise("ShapeError", e.what());
  } catch (const ValueError& e) {
    raise("InvalidValueError", e.what());
  } catch (const UnsupportedError& e) {
    raise("UnsupportedError", e.what());
  } catch (const DeviceError& e) {
    raise("DeviceError", e.what());
  } catch (const IoError& e) {
    raise("IoError", e.what());
  } catch (const FormatError& e) {
    raise("FormatError", e.what());
  } catch (const Error& e) {
    raise("Error", e.what());
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  nb::register_exception_translator(translate);
  m.def(
      "error_code",
      [](std::string_view type, std::string_view message) {
        const ErrorCode& code = error_code(type, message);
        return std::pair(code.code, code.fix);
      },
      nb::arg("type"), nb::arg("message"));
}

}  // namespace nvfp4::python
