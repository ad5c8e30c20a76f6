#include "checkpoint/transform.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4 {

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  checkpoint::TransformOptions transform{options};
  if (options.keep_dtype) transform.variant = "keep-dtype";
  return checkpoint::transform_checkpoint(transform);
}

}  // namespace nvfp4
