#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/cuda_build.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"

/// Checks that the kernels compute the right results on this machine.
namespace nvfp4 {

struct SelftestOptions {
  /// Only this one; else the CPU and every GPU that can be used. The CPU computes the reference.
  std::optional<Device> device = {};
  bool rates = true;  ///< also measure: some 10 s
  /// One of selftest_checks(): one bit of each of its results is flipped before the comparison, to
  /// show that a wrong kernel would be found.
  std::string inject_fault = {};
  std::function<void(const std::string& what)> progress = {};  ///< what is checked next
};

/// Names of the checks, in their order.
const std::vector<std::string>& selftest_checks();

/// Results of one kind, on one device or of one instruction set.
struct SelftestCheck {
  std::string subject;  ///< "cpu-avx2", "cuda:0"
  std::string name;     ///< of selftest_checks()
  std::string part;     ///< "mse", "grouped"
  std::int64_t cases = 0, wrong = 0;
  std::string fault;  ///< the first wrong one; empty: none
  /// Where results may differ by rounding: the largest error as a fraction of its bound.
  double worst = 0;
  std::vector<std::string> kernels;  ///< of products
};

/// What was measured.
struct SelftestRate {
  std::string subject, name;
  double value = 0;
  std::string unit;      ///< "GB/s", "TFLOP/s"
  double limit = 0;      ///< of the machine, in the same unit; 0: not known
  std::string limit_of;  ///< where the limit comes from
};

/// Which kernel the library takes for a product.
struct SelftestPlan {
  std::string device, product, kernel;
};

/// A GPU, usable or not, and what it has by its own account; 0: not known.
struct SelftestGpu {
  DeviceInfo info;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  double clock_mhz = 0;    ///< of the multiprocessors, at most
  double memory_gb_s = 0;  ///< two transfers in a clock of the memory, times its width
};

struct SelftestReport {
  std::string version;  ///< of nvfp4
  std::string cpu;      ///< the name that the processor gives itself
  int threads = 0;
  std::string backend;                ///< that is taken if none is named
  std::vector<BackendInfo> backends;  ///< instruction sets
  CudaBuild cuda;                     ///< empty texts: a build without
  std::vector<SelftestGpu> gpus;
  std::vector<SelftestPlan> plans;
  std::vector<SelftestCheck> checks;
  std::vector<SelftestRate> rates;
  /// Sentences: where the FP4 instruction of tensor cores takes its scales from and how it adds up,
  /// on a GPU that has it, and of the same in software.
  std::vector<std::string> fp4_instruction;
  std::vector<std::string> not_proven;  ///< sentences: what this run says nothing about
  double seconds = 0;

  bool passed() const;  ///< there were checks, and none has a fault
};

/// Compares conversions, quantizers and products on every instruction set of this CPU and on every
/// GPU with the scalar reference: bit for bit, but sums whose order is the kernel's own, which must
/// stay within a bound derived from the norms of their operands; those whose order makes no
/// difference are compared bit for bit, too. What throws is a fault. The reference is held to
/// tables that this computes by itself and to checksums of its bytes. Under a minute, with 500 MB
/// of memory, 1 GB on a GPU. Throws ValueError for a fault of no check, UnsupportedError for a
/// device that cannot be used.
SelftestReport run_selftest(const SelftestOptions& options = {});

std::string to_json(const SelftestReport& report);  ///< one object
std::string to_text(const SelftestReport& report);  ///< for people

}  // namespace nvfp4
