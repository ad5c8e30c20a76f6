#include "nvfp4/checkpoint/verify.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/safetensors/apart.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/verify/codes.h"
#include "core/require.h"

namespace nvfp4 {

using namespace checkpoint;

std::int64_t VerifyReport::count(Severity severity) const {
  return std::ranges::count(findings, severity, &Finding::severity);
}

namespace {

VerifyReport verify(const VerifyOptions& options, Measured& measured) try {
  const auto loaders = known_loaders();
  require<ValueError>(
      options.loader.empty() || std::ranges::find(loaders, options.loader) != loaders.end(),
      ErrorCode::not_a_choice, "loader = '{}', must be one of {}", options.loader,
      fmt::join(loaders, ", "));
  require<ValueError>(options.tensor_parallel.value_or(1) >= 1,
                      "tensor_parallel = {}, must be at least 1", *options.tensor_parallel);
  Findings findings(options.loader);
  const bool gguf = is_gguf_name(options.path) && !std::filesystem::is_directory(options.path);
  Subject subject =
      gguf ? open_gguf_subject(options.path, findings) : open_subject(options.path, findings);
  VerifyReport report;
  report.path = options.path.string();
  report.loader = options.loader;
  report.tensors = static_cast<std::int64_t>(subject.tensors.size());
  report.format = gguf ? "gguf" : "safetensors";
  bool any_nvfp4 = false, inputs = false;
  for (const LogicalTensor& t : subject.tensors) {
    report.bytes += t.bytes;
    if (t.is_plain()) continue;
    ++report.quantized;
    if (!gguf && (report.format == "safetensors" || t.is_nvfp4()))
      report.format = t.names->format->name;
    any_nvfp4 |= t.is_nvfp4();
    inputs |= t.is_nvfp4() && t.input;
  }
  if (any_nvfp4) report.scheme = scheme_name(inputs ? Scheme::w4a4 : Scheme::w4a16);
  if (subject.folder && subject.complete) check_layers(subject, findings);
  check_outside(subject, options.full, findings);
  check_zero_codes(subject, findings);
  report.tensor_parallel = check_tensor_parallel(subject, options.tensor_parallel, findings);
  check_config(subject, findings);
  check_globals(subject, findings);
  check_caches(subject, findings);
  check_loaders(subject, findings);
  for (LoaderVerdict& answer : answers_of(options.answers)) findings.judge(std::move(answer));
  const CacheScales caches(subject.tensors, {subject.model_type},
                           declares_cache(subject.in_config, subject.in_hf_quant));
  check_scales(subject.tensors, subject.defective, caches, findings, measured, options.progress);
  check_codes(subject, findings, measured, options.progress);
  if (options.full)
    check_hashes(options.path, subject.file_names, findings, measured, options.progress);
  if (options.source) {
    subject.close_files();
    try {
      check_source(subject, *options.source, findings, measured, options.progress);
    } catch (const Error& e) {
      if (!gguf) throw;
      findings.add("unreadable-file", options.path.filename().string(),
                   "cannot be compared with the source: {}", e.what());
    }
  }
  if (report.quantized == 0 && !findings.has_errors())
    findings.add("not-quantized", options.path.filename().string(), "{}: {} tensors, none is {}",
                 options.path.string(), report.tensors,
                 subject.unknown.empty() ? "quantized" : "of a form that is known");
  if (any_nvfp4 || !options.loader.empty()) report.loaders = findings.verdicts();
  // Engines read language models, diffusers the parts of a pipeline.
  std::erase_if(report.loaders, [&](const LoaderVerdict& v) {
    return options.loader.empty() && (v.loader == kDiffusers) != subject.is_diffusers() &&
           std::ranges::find(options.asked, v.loader) == options.asked.end();
  });
  report.findings = findings.take();
  return report;
} catch (const std::filesystem::filesystem_error& e) {
  throw_io_error(e);
}

}  // namespace

Shared<VerifyReport> verify_share(const VerifyOptions& options, const SharedWork& shared) {
  require_apart({{"path", options.path}, {"source", options.source.value_or("")}},
                {{"parts", shared.parts}});
  Measured measured(shared, "verify");
  VerifyReport report = verify(options, measured);
  if (!measured.is_shared()) return {std::move(report), {}};
  if (std::vector<int> missing = measured.join(); !missing.empty()) return {{}, missing};
  VerifyOptions quietly = options;
  quietly.progress = {};
  return {verify(quietly, measured), {}};
}

VerifyReport verify_checkpoint(const VerifyOptions& options) {
  return *verify_share(options, {}).report;
}

}  // namespace nvfp4
