#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint/checkpoint.h"

/// Verification, which finds faults of a quantized checkpoint before it is loaded.
namespace nvfp4 {

/// The severity of a finding.
enum class Severity : std::uint8_t {
  error,    ///< a loader refuses it or computes wrong results
  warning,  ///< probably a mistake, or wrong for some loaders
  note,     ///< worth knowing
};
/// Returns "error", "warning" or "note".
std::string_view severity_name(Severity severity);

/// The way in which repair_checkpoint() treats a fault.
enum class Repair : std::uint8_t {
  none,         ///< it leaves the fault, or mends it by a rule for this kind
  rewritten,    ///< it writes the index and the configurations anew
  from_source,  ///< it quantizes the weight of the source again
  impossible,   ///< it refuses the checkpoint
};

/// A kind of finding.
struct FindingKind {
  std::string_view code;
  Severity severity;
  std::string_view meaning;
  std::string_view effect;  ///< effect on a loader
  std::string_view fix;
  Repair repair = Repair::none;
};
/// Returns all kinds.
std::span<const FindingKind> finding_kinds();

/// A finding in a checkpoint.
struct Finding {
  std::string code;
  Severity severity = Severity::error;
  std::string tensor;  ///< tensor, module or file with the fault
  std::string text;    ///< the fault, in one line
  std::string effect, fix;
};

/// Returns the loaders with verdicts: "vllm", "sglang", "tensorrt-llm", "transformers",
/// "transformers+nvfp4", "diffusers", "llama.cpp". "transformers+nvfp4" and "diffusers" are with
/// the Python package.
std::span<const std::string_view> known_loaders();

/// The effect of a checkpoint on a loader.
enum class Verdict : std::uint8_t {
  unknown,   ///< nothing is known against it, and nobody loaded a model of its architecture
  reads,     ///< the loader, or a test that loads this architecture, shows it
  refuses,   ///< the loader stops while loading, or at its first computation
  misreads,  ///< the loader silently computes something else
};
/// Returns "unknown", "reads", "refuses" or "misreads".
std::string_view verdict_name(Verdict verdict);
/// Reports whether the loader cannot use the checkpoint.
inline bool is_bad(Verdict verdict) {
  return verdict == Verdict::refuses || verdict == Verdict::misreads;
}

/// The verdict of one loader on a checkpoint.
struct LoaderVerdict {
  std::string loader;
  Verdict verdict = Verdict::unknown;
  std::string code;           ///< first finding that decides the verdict; "" if none does
  std::string text;           ///< the reason
  std::string version;        ///< release that was judged; "" if the reason holds for all
  std::int64_t findings = 0;  ///< number of findings with this verdict
  /// Names from a loader that was asked, by their fate: "missing", "unexpected", "tied" and others.
  std::map<std::string, std::vector<std::string>> tensors = {};
};

/// The result of verify_checkpoint().
struct VerifyReport {
  std::string path, format, scheme, loader;
  std::int64_t tensors = 0, quantized = 0;
  std::uint64_t bytes = 0;
  std::vector<Finding> findings;  ///< errors first; limits of a loader only if it was requested
  /// The requested loader, or all for this kind of model and those that were asked.
  std::vector<LoaderVerdict> loaders;
  /// Numbers of GPUs, up to 64, that can share every layer without cutting a block of 16 weights.
  std::vector<int> tensor_parallel;

  /// Returns the number of findings with this severity.
  std::int64_t count(Severity severity) const;
  /// Reports whether the files have faults. With a requested loader it reports whether the loader
  /// refuses or misreads them.
  bool broken() const;
  /// Reports whether the verdict of the requested loader is unknown.
  bool is_unknown() const;
};

/// Checks files, index, configs, shapes, dtypes, every scale and every FP8 code; with a source,
/// every weight. Uses bounded memory. Throws IoError if the path cannot be read at all, ValueError
/// for an unknown loader, UnsupportedError for `full` without a list. Everything else is a finding.
VerifyReport verify_checkpoint(const VerifyOptions& options);
/// Returns the report as one JSON object, for --json.
std::string to_json(const VerifyReport& report);

}  // namespace nvfp4
