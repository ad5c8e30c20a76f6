#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <type_traits>

#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/error.h"

/// Interruptible calls, for functions on whole checkpoints.
namespace nvfp4::python {

namespace nb = nanobind;

using OnProgress = std::function<void(const Progress&)>;

/// An exception that ends the work of an interrupted function. Nobody sees it: the exception of the
/// signal handler is raised instead.
struct Interrupted {};

/// Runs work(on_progress) without the GIL in its own thread. This thread meanwhile lets Python
/// handle signals, which it does in the main thread only. An exception of a handler, such as
/// KeyboardInterrupt for Ctrl-C, ends the work at its next report. `progress` is None or a Python
/// function, which is called from any thread that reports.
template <class Work>
auto interruptible(const nb::object& progress, Work&& work) {
  using Result = std::invoke_result_t<Work&, const OnProgress&>;
  std::atomic<bool> stop{false};
  const OnProgress report = [&](const Progress& p) {
    if (stop) throw Interrupted{};
    if (progress.is_none()) return;
    nb::gil_scoped_acquire locked;
    progress(p.tensor, p.tensors_done, p.tensors_total, p.bytes_done, p.bytes_total);
  };
  std::optional<nb::python_error> raised;
  nb::gil_scoped_release unlocked;
  std::future<Result> done =
      std::async(std::launch::async, [&]() -> Result { return work(report); });
  while (done.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (stop) continue;
    nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) continue;
    raised.emplace();
    stop = true;
  }
  if (!raised) return done.get();
  try {
    done.get();
  } catch (...) {
    // Interrupted, or an error afterwards. The user requested the former.
  }
  throw nb::python_error(std::move(*raised));
}

}  // namespace nvfp4::python
