#include "nvfp4/checkpoint/convert.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/formats/format.h"
#include "checkpoint/run/transform.h"
#include "core/require.h"

namespace nvfp4 {

using namespace checkpoint;

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
  require<ValueError>(std::ranges::find(targets, to) != targets.end(), ErrorCode::not_a_choice,
                      "to = '{}', must be one of {}", to, fmt::join(targets, ", "));
  TransformOptions transform;
  static_cast<RunOptions&>(transform) = options;
  transform.allow = options.allow;
  transform.rest_is_q8_0 = options.rest == "q8_0";
  require<ValueError>(!transform.rest_is_q8_0 || to == "gguf",
                      "rest = q8_0 is for GGUF, not for {}", to);
  if (to == "bf16" || to == "fp16") {
    transform.task = TransformOptions::Task::decode;
    transform.plain = to == "bf16" ? safetensors::DType::bf16 : safetensors::DType::f16;
  } else {
    transform.task = TransformOptions::Task::convert;
    transform.format = to;
    transform.takes_scheme = !options.scheme;
    if (options.scheme) transform.scheme = *options.scheme;
  }
  return transform_checkpoint(std::move(transform));
}

}  // namespace nvfp4
