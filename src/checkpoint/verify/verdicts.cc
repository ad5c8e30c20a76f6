// The effect of each fault in each loader.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checkpoint/base/json.h"
#include "checkpoint/verify/checks.h"
#include "nvfp4/error.h"

namespace nvfp4 {

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"unknown", "reads", "refuses", "misreads"};
  return kNames[static_cast<std::size_t>(verdict)];
}

bool VerifyReport::broken() const {
  const bool judged = !loader.empty() && !loaders.empty();
  return count(Severity::error) > 0 || (judged && is_bad(loaders.front().verdict));
}

bool VerifyReport::is_unknown() const {
  return !loader.empty() && !loaders.empty() && loaders.front().verdict == Verdict::unknown;
}

namespace checkpoint {
namespace {

using enum Verdict;

/// The loaders that a fault matters to, and its effect there. For a fault without a row, all
/// loaders refuse an error, and none refuses a warning.
struct Reach {
  std::string_view code;
  Verdict verdict;
  std::array<std::string_view, 6> loaders = {};  ///< empty: all loaders
};

constexpr Reach kReach[] = {
    {"index-unlisted-tensor", misreads},
    {"stored-twice", misreads},
    {"changed-file", misreads},
    {"missing-layers", misreads},
    {"missing-embedding", misreads},
    {"missing-head", misreads},
    {"missing-norm", misreads},
    {"not-finite", misreads},
    {"rows-repeat", misreads},
    {"codes-zero-everywhere", misreads},
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
    {"missing-input-scale",
     misreads,
     {kVllm, kSglang, kTensorRt, kTransformers, kWithNvfp4, kDiffusers}},
    {"input-scale-invalid",
     misreads,
     {kVllm, kSglang, kTensorRt, kTransformers, kWithNvfp4, kDiffusers}},
    // transformers and diffusers have single layers with their own scales.
    {"fused-globals", misreads, {kVllm, kSglang}},
    {"fused-globals", refuses, {kTensorRt}},
    {"fused-globals-far",
     misreads,
     {kVllm, kSglang, kTransformers, kWithNvfp4, kDiffusers, kLlamaCpp}},
    {"fused-globals-far", refuses, {kTensorRt}},
    {"fused-input-scales", reads, {kVllm, kSglang}},
    {"fused-input-scales", refuses, {kTensorRt}},
    {"fused-partly", refuses, {kVllm, kSglang, kTensorRt}},
    {"hf-quant-keys", refuses, {kVllm}},
    {"parallel-cut", refuses, {kVllm, kSglang, kTensorRt}},
    {"not-quantized", unknown},
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

std::vector<LoaderVerdict> answers_of(const std::string& json) try {
  std::vector<LoaderVerdict> answers;
  if (json.empty()) return answers;
  const Json all = Json::parse(json);
  for (const auto& [loader, answer] : all.items()) {
    LoaderVerdict& v = answers.emplace_back();
    v.loader = loader;
    const auto verdict = answer.at("verdict").get<std::string>();
    for (const Verdict known : {Verdict::reads, Verdict::refuses, Verdict::misreads})
      if (verdict == verdict_name(known)) v.verdict = known;
    v.text = answer.at("text").get<std::string>();
    v.version = answer.at("version").get<std::string>();
    v.tensors = answer.at("tensors").get<decltype(v.tensors)>();
  }
  return answers;
} catch (const Json::exception& e) {
  throw FormatError(fmt::format("answers of loaders: {}", e.what()), ErrorCode::invalid_json);
}

}  // namespace checkpoint
}  // namespace nvfp4
