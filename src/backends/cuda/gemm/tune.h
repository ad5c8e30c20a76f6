#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/tune_cache.h"

/// Finds the fastest kernel of a GEMM by measurement. Only the measurement itself needs a GPU; the
/// rest is tested without one.
namespace nvfp4::cuda {

/// Returns the time of a GEMM with this plan in microseconds. A plan for which it throws
/// UnsupportedError is skipped.
using MeasurePlan = std::function<double(const KernelPlan& plan)>;

struct TunedPlan {
  KernelPlan plan;
  double microseconds = 0;
  bool chosen = false;  ///< the cost model's choice
};

/// Measures the chosen plan, the architecture's candidates, and variants of the fastest ones. Then
/// it measures the fastest again, in turn. The first result is the one to use: the chosen plan,
/// unless another is 1 % faster. The others follow by time.
std::vector<TunedPlan> tune(const KernelPlan& chosen, const Capability& capability,
                            std::int64_t max_workspace_bytes, const MeasurePlan& measure);

/// Returns the plan with these kernels. Throws ValueError if they do not fit the problem.
KernelPlan plan_of_parts(const KernelProblem& problem, const Capability& capability,
                         std::span<const NamedPart> parts, const Architecture& architecture);
std::vector<NamedPart> parts_of(const KernelPlan& plan);

/// The GPU and the versions for which measurements are valid.
struct TuneTarget {
  std::string gpu, driver, library;  ///< see TuneKey
  Capability capability;
};

/// Tunes for one GPU and stores the results in memory and in a file. It is thread-safe: a mutex
/// serializes calls.
class Tuner {
 public:
  /// Returns the function that measures plans of a description. It is called only if there is
  /// something to measure.
  using Prepare = std::function<MeasurePlan(const GemmDescription& description)>;
  explicit Tuner(TuneTarget target) : target_(std::move(target)) {}

  /// Returns the fastest plan: from memory, from the file, or measured now. `how` says which, and
  /// what was wrong with the file. An empty path disables the file.
  KernelPlan plan(const GemmDescription& description, const KernelPlan& chosen,
                  const std::filesystem::path& file, const Prepare& prepare, std::string& how);
  /// Measures even if a result exists.
  GemmTuning tune(const GemmDescription& description, const KernelPlan& chosen,
                  const std::filesystem::path& file, const Prepare& prepare);

 private:
  TuneKey key_of(const GemmDescription& description, const KernelPlan& chosen) const;
  std::optional<KernelPlan> find(std::span<const TuneEntry> among,
                                 const GemmDescription& description, const KernelPlan& chosen,
                                 std::string& note) const;
  std::vector<TunedPlan> measure(const GemmDescription& description, const KernelPlan& chosen,
                                 const std::filesystem::path& file, const Prepare& prepare,
                                 std::string& note);

  TuneTarget target_;
  std::mutex mutex_;
  std::vector<TuneEntry> known_;  ///< measured by this process
};

}  // namespace nvfp4::cuda
