#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

/// A kind of finding. docs/verify.md lists all kinds.
struct FindingKind {
  std::string_view code;
  Severity severity;
  std::string_view meaning;
  std::string_view effect;  ///< effect on a loader
  std::string_view fix;
};
/// Returns all kinds, as in docs/verify.md.
std::span<const FindingKind> finding_kinds();

/// A finding in a checkpoint.
struct Finding {
  std::string code;
  Severity severity = Severity::error;
  std::string tensor;  ///< tensor, module or file with the fault
  std::string text;    ///< the fault, in one line
  std::string effect, fix;
};

/// Returns the loaders with known limits: "vllm", "sglang", "tensorrt-llm", "transformers",
/// "llama.cpp".
std::span<const std::string_view> known_loaders();

/// The effect of a checkpoint on a loader.
enum class Verdict : std::uint8_t {
  reads,
  refuses,   ///< the loader stops while loading, or at its first computation
  misreads,  ///< the loader silently computes something else
};
/// Returns "reads", "refuses" or "misreads".
std::string_view verdict_name(Verdict verdict);

/// The verdict of one loader on a checkpoint.
struct LoaderVerdict {
  std::string loader;
  Verdict verdict = Verdict::reads;
  std::string code, text;     ///< first finding that decides the verdict; "" if it reads
  std::int64_t findings = 0;  ///< number of findings with this verdict
};

/// The result of verify_checkpoint().
struct VerifyReport {
  std::string path, format, scheme, loader;
  std::int64_t tensors = 0, quantized = 0;
  std::uint64_t bytes = 0;
  std::vector<Finding> findings;  ///< errors first; limits of a loader only if it was requested
  std::vector<LoaderVerdict> loaders;  ///< all known loaders, or the requested one

  /// Returns the number of findings with this severity.
  std::int64_t count(Severity severity) const;
  /// Reports whether the checkpoint is unusable. With a requested loader: the loader refuses or
  /// misreads it. Without one: the files have faults, or no known loader of this format reads them.
  bool broken() const;
};

/// Checks files, index, configs, shapes, dtypes, every scale and every FP8 code; with a source,
/// every weight. Uses bounded memory. Throws IoError if the path cannot be read at all, ValueError
/// for an unknown loader, UnsupportedError for `full` without a list. Everything else is a finding.
VerifyReport verify_checkpoint(const VerifyOptions& options);
/// Returns the report as one JSON object, for --json.
std::string to_json(const VerifyReport& report);

}  // namespace nvfp4
