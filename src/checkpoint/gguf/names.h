#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/gguf_names.h"

/// What llama.cpp calls the tensors of a model, and how it wants them.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// Of the families that llama.cpp knows, in the order of their table.
std::vector<const Architecture*> architectures();
/// Null if there is none.
const Architecture* find_architecture(std::string_view model_type);

/// Where a tensor of the model lies in the file.
struct Place {
  std::string file_name;
  std::int64_t layer = -1, expert = -1;
  bool query = false, key = false;  ///< rows may be interleaved
  bool scaled = false;
};

/// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight". Empty if there is no name.
std::optional<Place> place_of(const Architecture& architecture, std::string_view model_name);
/// The other way; `expert` is put in where the model names one.
std::optional<std::string> model_name_of(const Architecture& architecture,
                                         std::string_view file_name, std::int64_t expert = 0);
/// The file stacks the experts of a layer in this tensor.
bool stacks_experts(std::string_view file_name);

/// Row of the file at which row `row` of a q or k of `heads` heads lies; and back.
struct Interleave {
  std::int64_t rows_per_head = 0;  ///< 0: all rows stay
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
