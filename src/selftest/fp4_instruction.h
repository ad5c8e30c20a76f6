#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/fp4_instruction.h"

/// How an instruction adds up, and where it takes its scales from: found out by what it answers.
namespace nvfp4::selftest {

using MultiplyFp4 = std::function<void(std::span<Fp4Case> cases, int a_thread, int b_thread)>;

/// As PTX and MMA-Sim (arXiv 2511.10909) have it, on the CPU.
void multiply_fp4_on_host(std::span<Fp4Case> cases, int a_thread, int b_thread);

/// Cases whose sums are exact in any order, with scales of thread ids 0, as the kernels have them.
std::vector<Fp4Case> exact_fp4_cases(int count);
/// Codes, scales and sums at random.
std::vector<Fp4Case> random_fp4_cases(int count);
/// The first difference, or nothing.
std::string fp4_difference(const Fp4Case& got, const Fp4Case& expected);

/// What is found of thread ids, bits and truncation: a sentence each, "as PTX says" or how else.
std::vector<std::string> observed_fp4(const MultiplyFp4& multiply);

}  // namespace nvfp4::selftest
