#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/gemm/plan.h"
#include "backends/cuda/gemm/tune_cache.h"

/// Which kernel of a product is the fastest, found by measuring. All but the measuring is here, and
/// is tested without a GPU.
namespace nvfp4::cuda {

/// Microseconds of a product with a plan. May throw UnsupportedError: the plan is left out then.
using MeasurePlan = std::function<double(const KernelPlan& plan)>;

struct TunedPlan {
  KernelPlan plan;
  double microseconds = 0;
  bool chosen = false;  ///< what the cost model takes
};

/// Measures the plan that was chosen, then its architecture's likely fastest kernels, then others
/// with the steps and stages of the fastest of them changed, and at last the fastest in turn. The
/// first of the result is to be taken: the one that was chosen, unless another takes 1 % less; the
/// others follow by their time.
std::vector<TunedPlan> tune(const KernelPlan& chosen, const Capability& capability,
                            std::int64_t max_workspace_bytes, const MeasurePlan& measure);

/// The plan with these kernels of an architecture. Throws ValueError if they are not the problem's.
KernelPlan plan_of_parts(const KernelProblem& problem, const Capability& capability,
                         std::span<const NamedPart> parts, const Architecture& architecture);
std::vector<NamedPart> parts_of(const KernelPlan& plan);

/// What tuning knows of a GPU.
struct TuneTarget {
  std::string gpu, driver, library;  ///< as in TuneKey
  Capability capability;
};

/// Tunes for one GPU and keeps what it finds: for the process, and in a file. One thread at a time.
class Tuner {
 public:
  /// Prepares the measuring of a description's plans, and is called only if there is something to
  /// measure.
  using Prepare = std::function<MeasurePlan(const GemmDescription& description)>;
  explicit Tuner(TuneTarget target) : target_(std::move(target)) {}

  /// The fastest plan: of this process, of the file, or measured now. `how` says which, and what
  /// was wrong with the file. Without a path nothing is read or written.
  KernelPlan plan(const GemmDescription& description, const KernelPlan& chosen,
                  const std::filesystem::path& file, const Prepare& prepare, std::string& how);
  /// Measures, whatever is known already.
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
  std::vector<TuneEntry> known_;  ///< by this process
};

}  // namespace nvfp4::cuda
