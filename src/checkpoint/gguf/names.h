#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/gguf_names.h"

/// Names of a model's tensors in llama.cpp, and their order of rows.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// Returns the architectures that llama.cpp supports, in the order of the table of families.
std::vector<const Architecture*> architectures();
/// Returns the architecture of a model_type, or null.
const Architecture* find_architecture(std::string_view model_type);

/// The place of a model's tensor in the file.
struct Place {
  std::string file_name;
  std::int64_t layer = -1, expert = -1;
  bool query = false, key = false;  ///< rows may be interleaved
  bool scaled = false;
};

/// Returns "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". Null if the tensor
/// has no name.
std::optional<Place> place_of(const Architecture& architecture, std::string_view model_name);
/// Returns the model's name of a tensor of the file, with number `expert` if it contains one. Null
/// if it has none.
std::optional<std::string> model_name_of(const Architecture& architecture,
                                         std::string_view file_name, std::int64_t expert = 0);
/// Returns the name of a module of a layer in the file, without ".weight".
std::string file_module_of(const NamePair& pair, std::int64_t layer);
/// Returns the number of a layer, which follows `prefix` in a tensor's name. Null if there is none.
std::optional<std::int64_t> layer_of(std::string_view name, std::string_view prefix = "blk.");
/// Reports whether the tensor of the file is a stack of a layer's experts.
bool stacks_experts(std::string_view file_name);

/// The order of rows of a q or k. to_file() returns the index of a row in the file, to_model() that
/// in the model.
struct Interleave {
  std::int64_t rows_per_head = 0;  ///< 0: no row is moved
  std::int64_t to_file(std::int64_t row) const {
    if (rows_per_head == 0) return row;
    const std::int64_t half = rows_per_head / 2, inside = row % rows_per_head;
    return row - inside + inside % half * 2 + inside / half;
  }
  std::int64_t to_model(std::int64_t row) const {
    if (rows_per_head == 0) return row;
    const std::int64_t half = rows_per_head / 2, inside = row % rows_per_head;
    return row - inside + inside % 2 * half + inside / 2;
  }
};

}  // namespace nvfp4::gguf
