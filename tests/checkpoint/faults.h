#pragma once

#include "checkpoint/case_table.h"

/// A fault of each kind that `nvfp4 verify` knows, planted in a healthy model.
namespace nvfp4::faults {

namespace fs = std::filesystem;

inline const std::string kQ = "model.layers.0.self_attn.q_proj";
inline const std::string kUp = "model.layers.1.mlp.up_proj";

/// A healthy model for a fault, its source, and the options of verify.
struct Bed {
  fs::path source, output;
  VerifyOptions options;

  /// Changes tensors or configs.
  void edit(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(output);
    change(folder);
    fs::remove_all(output);
    folder.write(output);
  }
  void edit_source(const std::function<void(LoadedFolder&)>& change) const {
    LoadedFolder folder(source);
    change(folder);
    fs::remove_all(source);
    folder.write(source);
  }
  void compare() { options.source = source; }
  /// One linear layer, quantized alone.
  void only(const std::string& module, std::vector<std::int64_t> shape,
            std::vector<float> values = {}, const std::string& format = "modelopt") const {
    TestTensor tensor = random_tensor(module + ".weight", std::move(shape));
    if (!values.empty()) tensor.bytes = encode(values, safetensors::DType::bf16);
    fs::remove_all(source);
    fs::remove_all(output);
    write_model(source, {{std::move(tensor)}}, kLlamaConfig);
    quantize_checkpoint(source, output, {"--include", module + ".weight", "--format", format});
  }
  /// A layer of two experts, in compressed-tensors.
  void experts() const {
    fs::remove_all(source);
    fs::remove_all(output);
    std::vector<TestTensor> tensors = {random_tensor("model.norm.weight", {64})};
    for (const char* expert : {"0", "1"})
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        tensors.push_back(random_tensor(
            std::string("model.layers.0.mlp.experts.") + expert + "." + part + ".weight",
            {64, 64}));
    write_model(source, {std::move(tensors)}, kLlamaConfig);
    quantize_checkpoint(source, output, {"--format", "compressed-tensors"});
  }
};

using Plant = std::function<void(Bed&)>;

/// Returns the changes of the rows of data/verify.txt, by their names.
inline std::map<std::string, Plant> plants() {
  std::map<std::string, Plant> all;
  for (const table::Row& row : table::rows_of("verify.txt"))
    all[row.name] = [row](Bed& bed) { table::apply(row.column(1), bed.source, bed.output); };
  return all;
}

}  // namespace nvfp4::faults
