#include "checkpoint/source/source.h"

#include "checkpoint/source/adapter.h"

namespace nvfp4::checkpoint {

ModelFolder open_source(const std::filesystem::path& input,
                        const std::vector<std::string>& adapters, const ShardSupply* supply) {
  ModelFolder model = open_model_folder(input);
  if (supply != nullptr) {
    model.identity = supply->identity();
    for (TensorFile& file : model.files) file.supply_later();
  }
  add_adapters(model, adapters);
  return model;
}

}  // namespace nvfp4::checkpoint
