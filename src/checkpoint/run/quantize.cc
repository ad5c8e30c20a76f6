#include "checkpoint/formats/format.h"
#include "checkpoint/run/transform.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4 {
namespace {

/// Statistics weight the search of mse, unless another method is asked for.
const Method& method_for(const QuantizeCheckpointOptions& options) {
  if (!options.method.empty()) return method_from_name(options.method);
  const bool weighted = options.statistics && options.quantizer == Quantizer::mse;
  return method_from_name(weighted ? "weighted" : quantizer_name(options.quantizer));
}

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method& method : methods()) names.emplace_back(method.name);
  return names;
}

std::vector<FormatInfo> output_formats() {
  std::vector<FormatInfo> formats;
  for (const checkpoint::CheckpointFormat* f : checkpoint::checkpoint_formats())
    formats.push_back({std::string(f->name), std::string(f->note), std::string(f->extension)});
  return formats;
}

std::string default_format(const std::filesystem::path& output) {
  return std::string(checkpoint::default_checkpoint_format(output).name);
}

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  checkpoint::TransformOptions transform{options};
  transform.method = &method_for(options);
  transform.quantizer = transform.method->scales;
  if (options.keep_dtype) transform.variant = "keep-dtype";
  if (transform.format.empty()) transform.format = default_format(options.output);
  return checkpoint::transform_checkpoint(transform);
}

}  // namespace nvfp4
