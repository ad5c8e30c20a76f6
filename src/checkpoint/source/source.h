#pragma once

#include "checkpoint/source/model_folder.h"
#include "nvfp4/run_options.h"

namespace nvfp4::checkpoint {

/// A model as a run reads it: with its adapters (add_adapters()), and with shards that `supply`
/// brings later, unless that is null. Throws IoError, FormatError, ValueError, UnsupportedError.
ModelFolder open_source(const std::filesystem::path& input,
                        const std::vector<std::string>& adapters, const ShardSupply* supply);

}  // namespace nvfp4::checkpoint
