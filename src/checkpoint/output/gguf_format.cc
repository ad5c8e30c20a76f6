// The format of llama.cpp, a single file. Its blocks contain both codes and scales. With the names
// below, they are read from the blocks (gguf/view.h) and written into them (output/gguf_sink.cc).
#include "checkpoint/families/model_config.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/output/gguf_layout.h"

namespace nvfp4::checkpoint {
namespace {

bool claims(const TensorTable& table, const StoredTensor& codes, const std::string& module) {
  return codes.file->container() == "gguf" && table.find(module + ".weight_scale");
}

std::string_view left_out(std::string_view tensor, const ModelConfig& config) {
  if (config.text.empty()) return {};
  return gguf::left_out(tensor, parse_config_json(config.text, config.file));
}

/// Returns the function that excludes weights to which llama.cpp applies no global scale. Unknown
/// names are an error later.
KeptReason keeper(const ModelConfig& config) {
  if (config.text.empty()) return {};
  const auto json = parse_config_json(config.text, config.file);
  const gguf::Architecture* architecture = gguf::architecture_of(json);
  if (architecture == nullptr) return {};
  return [architecture, layers = gguf::main_layers(json)](const std::string& module) {
    const std::string name = gguf::as_layer(*architecture, module + ".weight", layers);
    const auto place = gguf::place_of(*architecture, name);
    return place && !place->scaled ? std::string("llama.cpp applies no global scale to it") : "";
  };
}

}  // namespace

extern const CheckpointFormat kGguf;

namespace {

const WeightNames kNames = {.format = &kGguf,
                            .codes = ".weight",
                            .scales = ".weight_scale",
                            .global = ".weight_scale_2",
                            .input = ".input_scale",
                            .claims = claims};

constexpr const WeightNames* kReads[] = {&kNames};
constexpr std::string_view kLoaders[] = {"llama.cpp"};

}  // namespace

/// The GGUF format. llama.cpp reads its configuration only from the keys of the file.
const CheckpointFormat kGguf = {.name = "gguf",
                                .reads = kReads,
                                .loaders = kLoaders,
                                .unsigned_scales = true,
                                .global_is_optional = true,
                                .names = &kNames,
                                .note = "a file for llama.cpp",
                                .left_out = left_out,
                                .keeper = keeper,
                                .single_file = "model.gguf",
                                .extension = ".gguf",
                                .columns = gguf::kBlockElements,
                                .dequantizes_rest = true,
                                .container = gguf::make_container};

}  // namespace nvfp4::checkpoint
