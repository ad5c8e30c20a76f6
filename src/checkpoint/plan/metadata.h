#pragma once

#include "checkpoint/base/json.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/plan/plan.h"

/// The metadata of the output.
namespace nvfp4::checkpoint {

/// Returns the values of options that differ from the members, for options::record(): a file by the
/// fingerprint of its content.
Json known_options(const Plan& plan, const ModelFolder& model, const TransformOptions& options);

/// Returns the metadata of an output shard: the input's, without what formats write about their own
/// tensors.
safetensors::Metadata metadata_of_output(safetensors::Metadata of_input);

/// Adds the producer if anything is quantized, and removes it if nothing stays quantized. A run
/// that only copies codes and scales leaves the input's entry.
void name_producer(Plan& plan, ModelConfig& config, const ModelFolder& model,
                   const TransformOptions& options);

/// Stores the inverses of global scales that come from the input. The format stores either the
/// multiplier or the divisor, and rounding loses the other.
void keep_reciprocals(Plan& plan);

}  // namespace nvfp4::checkpoint
