#pragma once

#include <cstddef>

/// Settings of the CPU as a device, in tests.
namespace nvfp4 {

/// The n-th piece of work from now on is not enqueued: DeviceError. 0: none fails.
void fail_to_enqueue(int n);
/// The behavior of the fake cuSOLVER of that device.
enum class FakeSolver { none, works, refuses, is_missing };
void set_solver(FakeSolver kind);
/// Matrices that it was given since set_solver().
int solved();
/// Pieces of work that nobody waited for before their stream went, and memory with it.
std::size_t given_up_work();

}  // namespace nvfp4
