#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/checkpoint.h"

/// Finds faults of a quantized checkpoint before a loader meets them.
namespace nvfp4 {

enum class Severity : std::uint8_t {
  error,    ///< a loader refuses it or computes something else
  warning,  ///< likely a mistake, or wrong for some loaders
  note,     ///< worth knowing
};
std::string_view severity_name(Severity severity);  ///< "error", "warning", "note"

/// One kind of finding; docs/verify.md lists them all.
struct FindingKind {
  std::string_view code;
  Severity severity;
  std::string_view meaning;
  std::string_view effect;  ///< what a loader does with it
  std::string_view fix;
};
std::span<const FindingKind> finding_kinds();  ///< all kinds, as in docs/verify.md

struct Finding {
  std::string code;
  Severity severity = Severity::error;
  std::string tensor;  ///< tensor, module or file that it is about
  std::string text;    ///< what was found, in one line
  std::string effect, fix;
};

/// Loaders whose limits are known: "vllm", "sglang", "tensorrt-llm", "transformers", "llama.cpp".
std::span<const std::string_view> known_loaders();

enum class Verdict : std::uint8_t {
  reads,
  refuses,   ///< it stops while loading, or when it first computes
  misreads,  ///< it silently computes something else
};
std::string_view verdict_name(Verdict verdict);  ///< "reads", "refuses", "misreads"

/// What one loader does with a checkpoint.
struct LoaderVerdict {
  std::string loader;
  Verdict verdict = Verdict::reads;
  std::string code, text;     ///< of the first finding that decides it; "" if it reads
  std::int64_t findings = 0;  ///< how many say so
};

struct VerifyOptions {
  std::filesystem::path path;                   ///< model folder, or one file
  std::optional<std::filesystem::path> source;  ///< the original checkpoint
  std::string loader;                           ///< "": faults of the files, and a verdict of each
  std::function<void(const Progress&)> progress;  ///< called from any thread, one at a time
};

struct VerifyReport {
  std::string path, format, scheme, loader;
  std::int64_t tensors = 0, quantized = 0;
  std::uint64_t bytes = 0;
  std::vector<Finding> findings;  ///< errors first; limits of a loader only if it was asked for
  std::vector<LoaderVerdict> loaders;  ///< all known, or the one asked for

  std::int64_t count(Severity severity) const;
  /// With a loader: whether it refuses or misreads this. Without one: whether the files have
  /// faults, or no known loader of this format reads them.
  bool broken() const;
};

/// Checks files, index, configs, shapes, dtypes, every scale and every FP8 code; with a source,
/// every weight. Bounded memory. Throws IoError if the path cannot be read at all, ValueError for
/// an unknown loader; everything else is a finding.
VerifyReport verify_checkpoint(const VerifyOptions& options);
std::string to_json(const VerifyReport& report);  ///< one object, as of --json

}  // namespace nvfp4
