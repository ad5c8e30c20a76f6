#include "checkpoint/transform.h"
#include "nvfp4/checkpoint.h"

namespace nvfp4 {

QuantizeReport quantize_checkpoint(const QuantizeCheckpointOptions& options) {
  return checkpoint::transform_checkpoint({options});
}

}  // namespace nvfp4
