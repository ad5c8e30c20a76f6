#pragma once

#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"

/// What the output says of itself beyond its tensors.
namespace nvfp4::checkpoint {

/// What a report calls it: "quantized", "moved", ...
const char* action_of(Work work);

/// In config.json and in the metadata of each shard: what made the scales, in which version, by
/// which options and of what. ModelOpt's own "producer" is a name that loaders go by.
inline constexpr const char* kProducerKey = "nvfp4_cpp";

/// Of a shard: the input's, without what formats say of their own tensors.
safetensors::Metadata metadata_of_output(safetensors::Metadata of_input);

/// Puts it there if anything is encoded anew, and takes it out if nothing stays quantized. A run
/// that only moves scales leaves what the input says.
void name_producer(Plan& plan, ModelConfig& config, const ModelFolder& model,
                   const TransformOptions& options);

/// Of the global scales that come from the input: the sense that the format does not store.
void keep_reciprocals(Plan& plan);

}  // namespace nvfp4::checkpoint
