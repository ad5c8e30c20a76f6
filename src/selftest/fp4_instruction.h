#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nvfp4/device.h"
#include "selftest/fp4_case.h"

/// Observations of an FP4 instruction: its order of summation and the lanes of its scales. They are
/// derived from its results.
namespace nvfp4::selftest {

using MultiplyFp4 = std::function<void(std::span<Fp4Case> cases, int a_thread, int b_thread)>;

/// Computes the instruction on the CPU, as described by PTX and MMA-Sim (arXiv 2511.10909).
void multiply_fp4_on_host(std::span<Fp4Case> cases, int a_thread, int b_thread);

/// Reports whether a GPU has the instruction, and this build a kernel with it.
bool has_fp4_instruction(Device gpu);
/// Multiplies the cases by the instruction of a GPU that has it.
void multiply_fp4(Device gpu, std::span<Fp4Case> cases, int a_thread, int b_thread);

/// Returns cases with sums that are exact in any order, with scales of thread ids 0, as in the
/// kernels.
std::vector<Fp4Case> exact_fp4_cases(int count);
/// Returns cases with random codes, scales and sums.
std::vector<Fp4Case> random_fp4_cases(int count);
/// Returns the first difference as text, or "".
std::string fp4_difference(const Fp4Case& got, const Fp4Case& expected);

/// Returns one sentence each on thread ids, bits and truncation.
std::vector<std::string> observed_fp4(const MultiplyFp4& multiply);

}  // namespace nvfp4::selftest
