#include "nvfp4/convert.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/formats/format.h"
#include "checkpoint/run/transform.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using namespace checkpoint;

/// That of the NVFP4 weights; those without input scales count only if all are.
Scheme scheme_of(const std::filesystem::path& input) {
  const CheckpointReader reader(input);
  bool any = false;
  for (const LogicalTensor& t : reader.tensors()) {
    if (!t.is_nvfp4()) continue;
    if (t.input) return Scheme::nvfp4;
    any = true;
  }
  return any ? Scheme::nvfp4a16 : Scheme::nvfp4;
}

}  // namespace

std::vector<std::string> conversion_targets() {
  std::vector<std::string> names;
  for (const CheckpointFormat* format : checkpoint_formats()) names.emplace_back(format->name);
  names.insert(names.end(), {"bf16", "fp16"});
  return names;
}

QuantizeReport convert_checkpoint(const ConvertOptions& options) {
  const std::vector<std::string> targets = conversion_targets();
  const CheckpointFormat& of_name = default_checkpoint_format(options.output);
  const std::string to =
      options.to.empty() && !of_name.extension.empty() ? std::string(of_name.name) : options.to;
  require<ValueError>(std::ranges::find(targets, to) != targets.end(), "to = {}, must be one of {}",
                      to, fmt::join(targets, ", "));
  TransformOptions transform;
  static_cast<RunOptions&>(transform) = options;
  transform.drop = options.drop;
  transform.force = options.force;
  transform.decode = options.decode;
  if (to == "bf16" || to == "fp16") {
    transform.task = TransformOptions::Task::decode;
    transform.plain = to == "bf16" ? safetensors::DType::bf16 : safetensors::DType::f16;
  } else {
    transform.task = TransformOptions::Task::convert;
    transform.format = to;
    transform.scheme = options.scheme ? *options.scheme : scheme_of(options.input);
  }
  return transform_checkpoint(transform);
}

}  // namespace nvfp4
