#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda_build.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"

/// The self-test, which checks that the kernels compute the right results on this machine.
namespace nvfp4 {

/// The options of run_selftest().
struct SelftestOptions {
  /// The only device to check. By default all are checked: the CPU and every usable GPU. The CPU
  /// computes the reference in each case.
  std::optional<Device> device = {};
  bool rates = true;  ///< if true, rates are also measured, which takes about 10 s
  /// The name of a check, one of selftest_checks(). One bit of each of its results is flipped
  /// before the comparison. This shows that a wrong kernel is found.
  std::string inject_fault = {};
  /// A function that is called with the name of the next check.
  std::function<void(const std::string& what)> progress = {};
};

/// Returns the names of the checks in their order.
const std::vector<std::string>& selftest_checks();

/// The result of a check on one device or instruction set.
struct SelftestCheck {
  std::string subject;  ///< such as "cpu-avx2" or "cuda:0"
  std::string name;     ///< one of selftest_checks()
  std::string part;     ///< such as "mse" or "grouped"
  std::int64_t cases = 0, wrong = 0;
  std::string fault;  ///< first fault; "": none
  /// The largest error as a fraction of its bound, for results that may differ by rounding.
  double worst = 0;
  std::vector<std::string> kernels;  ///< kernels of GEMMs
};

/// A measured rate.
struct SelftestRate {
  std::string subject, name;
  double value = 0;
  std::string unit;      ///< "GB/s", "TFLOP/s"
  double limit = 0;      ///< limit of the machine, in the same unit; 0: unknown
  std::string limit_of;  ///< source of the limit
};

/// The kernel that the library chooses for a GEMM.
struct SelftestPlan {
  std::string device, product, kernel;
};

/// A GPU, usable or not, and its properties as the driver reports them. 0 means unknown.
struct SelftestGpu {
  DeviceInfo info;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  double clock_mhz = 0;    ///< maximal clock of the multiprocessors
  double memory_gb_s = 0;  ///< two transfers per memory clock, times the bus width
};

/// The result of run_selftest().
struct SelftestReport {
  std::string version;  ///< version of nvfp4
  std::string cpu;      ///< name of the processor
  int threads = 0;
  std::string backend;                ///< default backend
  std::vector<BackendInfo> backends;  ///< instruction sets
  CudaBuild cuda;                     ///< empty without CUDA
  std::vector<SelftestGpu> gpus;
  std::vector<SelftestPlan> plans;
  std::vector<SelftestCheck> checks;
  std::vector<SelftestRate> rates;
  /// Sentences on the FP4 instruction of tensor cores: the source of its scales, and its order of
  /// summation. They are about the instruction on a GPU, if there is one, and about the same in
  /// software.
  std::vector<std::string> fp4_instruction;
  std::vector<std::string> not_proven;  ///< sentences: claims that this run does not prove
  double seconds = 0;

  bool passed() const;  ///< true if there were checks and none has a fault
};

/// Compares conversions, quantizers and GEMMs with the scalar reference, on every instruction set
/// of this CPU and on every GPU. Results must be equal bit for bit. Only sums in an order
/// that the kernel chooses may differ. They must be within a bound derived from the norms of their
/// operands. Sums whose order makes no difference must be equal, too. An exception that is thrown
/// is a fault. The reference is compared with tables that this function computes itself, and with
/// checksums. A run takes less than a minute, 500 MB of memory and 1 GB on a GPU. Throws ValueError
/// for an unknown `inject_fault`, UnsupportedError for a device that cannot be used.
SelftestReport run_selftest(const SelftestOptions& options = {});

/// Measures the rates of one device, on the CPU with the kernels of a backend ("": the best one).
/// Throws ValueError, UnsupportedError.
std::vector<SelftestRate> measure_rates(Device device, const std::string& backend = {});

std::string to_json(const SelftestReport& report);  ///< JSON object

}  // namespace nvfp4
