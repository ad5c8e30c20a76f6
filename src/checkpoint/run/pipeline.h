#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {

struct PipelineOptions {
  Scheme scheme = Scheme::nvfp4;
  const CheckpointFormat* format = nullptr;
  Quantizer quantizer = Quantizer::max;
  safetensors::DType plain = safetensors::DType::bf16;  ///< of decoded weights
  std::string backend;
  Device device;  ///< that encodes; the CPU reads, measures and writes
  bool wait_for_device = false, release_device = false;  ///< as of QuantizeCheckpointOptions
  std::function<void(const Progress&)> progress;
  /// Of `output` in write_shards(), if that is a file of another kind; null: safetensors in it.
  const Container* container = nullptr;
};

/// Writes the shards whose `done` is false into the folder `output`, in bounded memory: windows of
/// about 100 MB of input, each measured, then encoded, while the next is measured. `before_commit`
/// is called with each shard's number, when all its bytes are written and before it gets its name.
/// Returns the outcome of each tensor of the shards it wrote. The result does not depend on the
/// number of threads, nor on the device.
std::vector<Outcome> write_shards(
    const Plan& plan, const PipelineOptions& options, const std::filesystem::path& output,
    const std::vector<bool>& done,
    const std::function<void(std::size_t shard, const std::vector<Outcome>&)>& before_commit);

}  // namespace nvfp4::checkpoint
