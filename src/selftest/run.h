#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "selftest/selftest.h"

/// The run of the self-test, which collects the results of checks.
namespace nvfp4::selftest {

/// The instruction set or GPU that is checked.
struct Subject {
  std::string name;
  Device device = {};
  std::string backend = {};               ///< backend of the CPU
  std::vector<std::string> kernels = {};  ///< GEMM kernels in addition to the library's choice
};

inline constexpr std::string_view kReference = "reference";

struct CheckName {
  std::string_view name, part;
};

class Run {
 public:
  Run(const SelftestOptions& options, SelftestReport& report)
      : options_(options), report_(report) {}

  /// Runs one case. `compare` gets the SelftestCheck and returns the fault as text, or "".
  template <class Compare>
  void check(const Subject& subject, const CheckName& name, const std::string& what,
             const Compare& compare) {
    SelftestCheck& c = find(subject, name);
    ++c.cases;
    std::string fault;
    try {
      fault = compare(c);
    } catch (const std::exception& e) {
      fault = e.what();
    }
    if (fault.empty()) return;
    if (c.wrong++ == 0) c.fault = what.empty() ? fault : fmt::format("{}: {}", what, fault);
  }

  SelftestReport& report() { return report_; }

  /// Flips the lowest bit of a result if `check` is the one with an injected fault.
  void inject_fault(std::string_view check, void* result) const {
    if (options_.inject_fault == check) *static_cast<unsigned char*>(result) ^= 1;
  }

 private:
  SelftestCheck& find(const Subject& subject, const CheckName& name) {
    const auto found = std::ranges::find_if(report_.checks, [&](const SelftestCheck& c) {
      return c.subject == subject.name && c.name == name.name && c.part == name.part;
    });
    if (found != report_.checks.end()) return *found;
    if (options_.progress)
      options_.progress(fmt::format("{}: {} {}", subject.name, name.name, name.part));
    SelftestCheck& c = report_.checks.emplace_back();
    c.subject = subject.name;
    c.name = name.name;
    c.part = name.part;
    return c;
  }

  const SelftestOptions& options_;
  SelftestReport& report_;
};

// The checks. GEMMs are checked only in forms that GPUs and all instruction sets have. The
// reference is a subject.
void check_formats(Run& run, const Subject& subject);
void check_layouts(Run& run, const Subject& subject);
/// Checks quantizers. The reference is compared with checksums, the other subjects with the
/// reference.
void check_quantizers(Run& run, const std::vector<Subject>& subjects);
void check_dequantize(Run& run, const std::vector<Subject>& subjects);
void check_fused(Run& run, const std::vector<Subject>& subjects);
void check_gemms(Run& run, const std::vector<Subject>& subjects);
/// Checks the FP4 instruction of the reference and of GPUs. The observations go to the report.
void check_fp4_instruction(Run& run, const Subject& subject);

/// Runs all checks in the order of selftest_checks().
void check_all(Run& run, const std::vector<Subject>& subjects);

/// Returns the claims that a run does not prove, as sentences.
std::vector<std::string> not_proven(const SelftestOptions& options, const SelftestReport& report);

}  // namespace nvfp4::selftest
