// The effect of each fault in each loader.
#include <algorithm>
#include <array>

#include "checkpoint/verify/checks.h"

namespace nvfp4 {

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::reads ? "reads" : verdict == Verdict::refuses ? "refuses" : "misreads";
}

bool VerifyReport::broken() const {
  if (count(Severity::error) > 0) return true;
  const auto reads = [](const LoaderVerdict& v) { return v.verdict == Verdict::reads; };
  const auto could = [](const LoaderVerdict& v) { return v.code != "loader-format"; };
  return std::ranges::none_of(loaders, reads) && std::ranges::any_of(loaders, could);
}

namespace checkpoint {
namespace {

using enum Verdict;

/// The loaders that a fault matters to, and its effect there. For a fault without a row, all
/// loaders refuse an error, and none refuses a warning.
struct Reach {
  std::string_view code;
  Verdict verdict;
  std::array<std::string_view, 4> loaders = {};  ///< empty: all loaders
};

constexpr Reach kReach[] = {
    {"index-unlisted-tensor", misreads},
    {"stored-twice", misreads},
    {"changed-file", misreads},
    {"missing-layers", misreads},
    {"missing-global-scale", misreads},
    {"swizzled-scales", misreads},
    {"nibble-order", misreads},
    {"scale-nan", misreads},
    {"scale-negative", misreads},
    {"scale-too-large", misreads},
    {"code-nan", misreads},
    {"global-scale-invalid", misreads},
    {"global-scale-sense", misreads},
    // llama.cpp computes with 8-bit activations and fuses nothing.
    {"missing-input-scale", misreads, {kVllm, kSglang, kTensorRt, kTransformers}},
    {"input-scale-invalid", misreads, {kVllm, kSglang, kTensorRt, kTransformers}},
    // transformers has single layers with their own scales.
    {"fused-globals", misreads, {kVllm, kSglang}},
    {"fused-globals", refuses, {kTensorRt}},
    {"fused-globals-far", misreads, {kVllm, kSglang, kTransformers, kLlamaCpp}},
    {"fused-globals-far", refuses, {kTensorRt}},
    {"fused-input-scales", reads, {kVllm, kSglang}},
    {"fused-input-scales", refuses, {kTensorRt}},
    {"fused-partly", refuses, {kVllm, kSglang, kTensorRt}},
    {"hf-quant-keys", refuses, {kVllm}},
    {"source-missing", misreads},
    {"other-source", reads},
    {"far-from-source", misreads},
};

bool names(const Reach& reach, std::string_view loader) {
  return reach.loaders[0].empty() ||
         std::ranges::find(reach.loaders, loader) != reach.loaders.end();
}

}  // namespace

Verdict verdict_of(std::string_view code, Severity severity, std::string_view loader) {
  bool known = false;
  for (const Reach& reach : kReach) {
    if (reach.code != code) continue;
    known = true;
    if (names(reach, loader)) return reach.verdict;
  }
  return known || severity != Severity::error ? reads : refuses;
}

bool concerns(std::string_view code, std::string_view loader) {
  bool known = false;
  for (const Reach& reach : kReach) {
    if (reach.code != code) continue;
    known = true;
    if (names(reach, loader)) return true;
  }
  return !known;
}

}  // namespace checkpoint
}  // namespace nvfp4
