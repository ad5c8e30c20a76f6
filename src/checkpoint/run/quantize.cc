#include "checkpoint/io/tensor_file.h"
#include "checkpoint/run/transform.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4 {

std::string default_format(const std::filesystem::path& output) {
  return checkpoint::is_gguf_name(output) ? "gguf" : "modelopt";
}

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  checkpoint::TransformOptions transform{options};
  if (options.keep_dtype) transform.variant = "keep-dtype";
  if (transform.format.empty()) transform.format = default_format(options.output);
  return checkpoint::transform_checkpoint(transform);
}

}  // namespace nvfp4
