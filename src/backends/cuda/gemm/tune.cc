#include "backends/cuda/gemm/tune.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::cuda {
namespace {

constexpr std::size_t kMostTiles = 12, kVaried = 3, kFinalists = 4;
constexpr int kRepeats = 5;
constexpr double kWorthwhile = 0.99;  ///< relative to the time of the chosen kernel

bool same_parts(const KernelPlan& a, const KernelPlan& b) {
  for (std::size_t i = 0; i < a.parts.size(); ++i)
    if (a.parts[i].rows != b.parts[i].rows || a.parts[i].kernel != b.parts[i].kernel) return false;
  return true;
}

bool is_single(const KernelPlan& plan) { return plan.parts[1].rows == 0; }

/// Returns the kernels' names in the form of TimedKernel.
std::string names_of(const KernelPlan& plan) {
  const std::vector<NamedPart> parts = parts_of(plan);
  if (parts.size() == 1) return parts[0].kernel;
  std::string text;
  for (const NamedPart& p : parts)
    text += fmt::format("{}{} rows: {}", text.empty() ? "" : ", ", p.rows, p.kernel);
  return text;
}

/// The state of one search: the plans that have been measured.
class Search {
 public:
  Search(const KernelPlan& chosen, const Capability& capability, std::int64_t max_workspace_bytes,
         const MeasurePlan& measure)
      : problem_(chosen.problem),
        architecture_(*chosen.architecture),
        capability_(capability),
        max_workspace_bytes_(max_workspace_bytes),
        measure_(measure) {
    problem_.stream_k = max_workspace_bytes > 0;
    add(chosen, true);
  }

  void add_candidates() {
    // An unordered list is measured completely.
    const bool ordered = architecture_.candidates != nullptr;
    std::size_t count = 0;
    for (const KernelConfig& kernel :
         ordered ? architecture_.candidates(problem_) : kernel_configs(architecture_.kernels))
      if ((count < kMostTiles || !ordered) && add(kernel)) ++count;
  }

  /// Measures variants of the fastest tiles so far.
  void add_variants() {
    sort();
    std::vector<KernelConfig> tiles;
    for (const TunedPlan& p : plans_)
      if (tiles.size() < kVaried && is_single(p.plan)) tiles.push_back(p.plan.parts[0].kernel);
    if (architecture_.variants == nullptr) return;
    for (const KernelConfig& tile : tiles)
      for (const KernelConfig& kernel : architecture_.variants(problem_, tile)) add(kernel);
  }

  /// Measures the fastest plans several times, in turn, because the minimum of many measurements is
  /// partly luck. No other plan comes before them.
  std::vector<TunedPlan> finish() {
    sort();
    const auto rest = std::stable_partition(plans_.begin(), plans_.end(),
                                            [count = std::size_t{0}](const TunedPlan& p) mutable {
                                              return p.chosen || count++ < kFinalists;
                                            });
    const std::span<TunedPlan> finalists(plans_.begin(), rest);
    std::vector<std::vector<double>> times(finalists.size());
    for (int i = 0; i < kRepeats; ++i)
      for (std::size_t j = 0; j < finalists.size(); ++j)
        times[j].push_back(measure_(finalists[j].plan));
    for (std::size_t j = 0; j < finalists.size(); ++j) {
      std::ranges::sort(times[j]);
      finalists[j].microseconds = times[j][kRepeats / 2];
    }
    std::ranges::stable_sort(finalists, {}, &TunedPlan::microseconds);
    const auto chosen = std::ranges::find(finalists, true, &TunedPlan::chosen);
    if (chosen != finalists.end() &&
        finalists.front().microseconds > kWorthwhile * chosen->microseconds)
      std::rotate(finalists.begin(), chosen, chosen + 1);
    return std::move(plans_);
  }

 private:
  void sort() { std::ranges::stable_sort(plans_, {}, &TunedPlan::microseconds); }

  bool add(const KernelConfig& kernel) {
    if (!architecture_.why_impossible(problem_, kernel).empty()) return false;
    const Architecture* const only[] = {&architecture_};
    const KernelPlan plan = plan_kernels(problem_, capability_, kernel, only);
    return plan.workspace_bytes <= max_workspace_bytes_ && add(plan, false);
  }

  bool add(const KernelPlan& plan, bool chosen) {
    for (const TunedPlan& p : plans_)
      if (same_parts(p.plan, plan)) return false;
    try {
      const double time = measure_(plan);
      if (!std::isfinite(time)) return false;
      plans_.push_back({plan, time, chosen});
      return true;
    } catch (const UnsupportedError&) {
      return false;
    }
  }

  KernelProblem problem_;
  const Architecture& architecture_;
  const Capability& capability_;
  std::int64_t max_workspace_bytes_;
  const MeasurePlan& measure_;
  std::vector<TunedPlan> plans_;
};

}  // namespace

std::vector<TunedPlan> tune(const KernelPlan& chosen, const Capability& capability,
                            std::int64_t max_workspace_bytes, const MeasurePlan& measure) {
  Search search(chosen, capability, max_workspace_bytes, measure);
  search.add_candidates();
  search.add_variants();
  return search.finish();
}

std::vector<NamedPart> parts_of(const KernelPlan& plan) {
  std::vector<NamedPart> parts;
  for (const PlanPart& part : plan.parts)
    if (part.rows > 0 || parts.empty())
      parts.push_back({part.rows, kernel_name(part.kernel, *plan.architecture)});
  return parts;
}

KernelPlan plan_of_parts(const KernelProblem& problem, const Capability& capability,
                         std::span<const NamedPart> parts, const Architecture& architecture) {
  const Architecture* const only[] = {&architecture};
  std::int64_t rows = 0;
  for (const NamedPart& part : parts) rows += part.rows;
  require<ValueError>(
      !parts.empty() && parts.size() <= std::tuple_size_v<decltype(KernelPlan::parts)>,
      "gemm: a plan has {} parts, must have one or two", parts.size());
  require<ValueError>(rows == problem.m, "gemm: the parts of a plan have {} rows, must have {}",
                      rows, problem.m);
  require<ValueError>(parts.size() == 1 || (problem.groups == 1 && !problem.grouped),
                      "gemm: a plan of {} groups has {} parts, must have one", problem.groups,
                      parts.size());
  KernelPlan plan;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    KernelProblem of_part = problem;
    of_part.m = parts[i].rows;
    const KernelConfig kernel = kernel_config(parts[i].kernel, only);
    const KernelPlan one = plan_kernels(of_part, capability, kernel, only);
    const bool stream_k = one.problem.stream_k || plan.problem.stream_k;
    plan.architecture = one.architecture;
    plan.problem = one.problem;
    plan.problem.stream_k = stream_k;
    plan.parts[i] = {parts[i].rows, kernel};
    plan.workspace_bytes = std::max(plan.workspace_bytes, one.workspace_bytes);
  }
  plan.problem.m = problem.m;
  return plan;
}

TuneKey Tuner::key_of(const GemmDescription& d, const KernelPlan& chosen) const {
  return {target_.gpu, target_.driver, target_.library,
          fmt::format("{} {}", chosen.architecture->name, problem_key(d))};
}

std::optional<KernelPlan> Tuner::find(std::span<const TuneEntry> among, const GemmDescription& d,
                                      const KernelPlan& chosen, std::string& note) const {
  const auto found = std::ranges::find(among, key_of(d, chosen), &TuneEntry::key);
  if (found == among.end()) return {};
  try {
    KernelPlan plan =
        plan_of_parts(chosen.problem, target_.capability, found->parts, *chosen.architecture);
    if (plan.workspace_bytes <= d.max_workspace_bytes) return plan;
    note = fmt::format("its kernel needs {} bytes of workspace", plan.workspace_bytes);
  } catch (const Error& e) {  // the file is input and may contain anything
    note = printable(e.what());
  }
  return {};
}

std::vector<TunedPlan> Tuner::measure(const GemmDescription& d, const KernelPlan& chosen,
                                      const std::filesystem::path& file, const Prepare& prepare,
                                      std::string& note) {
  std::vector<TunedPlan> plans =
      cuda::tune(chosen, target_.capability, d.max_workspace_bytes, prepare(d));
  require<UnsupportedError>(!plans.empty(), "tune_gemm: no kernel of {} can be run",
                            chosen.architecture->name);
  const TuneEntry entry{key_of(d, chosen), parts_of(plans[0].plan), plans[0].microseconds};
  std::erase_if(known_, [&](const TuneEntry& e) { return e.key == entry.key; });
  known_.push_back(entry);
  if (file.empty())
    note = "no file keeps it: none of NVFP4_TUNE_CACHE, XDG_CACHE_HOME and HOME is a path";
  else if (const std::string why = keep_tune_entry(file, entry); !why.empty())
    note = fmt::format("{} does not keep it: {}", file.string(), why);
  return plans;
}

KernelPlan Tuner::plan(const GemmDescription& d, const KernelPlan& chosen,
                       const std::filesystem::path& file, const Prepare& prepare,
                       std::string& how) {
  const std::lock_guard lock(mutex_);
  std::string note;
  how = "tuned by this process";
  if (const auto known = find(known_, d, chosen, note)) return *known;
  std::string ignored;
  if (!file.empty()) {
    const TuneFile kept = read_tune_file(file);
    ignored = kept.note;
    how = fmt::format("tuned before, kept in {}", file.string());
    if (const auto found = find(kept.entries, d, chosen, ignored)) return *found;
  }
  KernelPlan plan = measure(d, chosen, file, prepare, note)[0].plan;
  how = "tuned now";
  if (!ignored.empty()) how += fmt::format("; {} was ignored: {}", file.string(), ignored);
  if (!note.empty()) how += "; " + note;
  return plan;
}

GemmTuning Tuner::tune(const GemmDescription& d, const KernelPlan& chosen,
                       const std::filesystem::path& file, const Prepare& prepare) {
  const std::lock_guard lock(mutex_);
  GemmTuning tuning;
  const std::string ignored = file.empty() ? "" : read_tune_file(file).note;
  for (const TunedPlan& p : measure(d, chosen, file, prepare, tuning.note))
    tuning.kernels.push_back({names_of(p.plan), p.microseconds, p.chosen});
  if (tuning.note.empty()) {
    tuning.file = file.string();
    if (!ignored.empty()) tuning.note = fmt::format("{} was ignored: {}", tuning.file, ignored);
  }
  return tuning;
}

}  // namespace nvfp4::cuda
