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
  Change change = Change::none;
  Heads heads = Heads::none;
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
bool stacks_experts(const Architecture& architecture, std::string_view file_name);

/// Returns a number of the model as the file has it, and back.
float changed(float value, Change change);
float reverted(float value, Change change);

/// The order of a tensor's rows, or of its columns: behind the first ones, those of each a * b * d
/// are [a, b, d] in the model and [b, a, d] in the file.
struct Order {
  std::int64_t first = 0;
  std::int64_t a = 1, b = 1, d = 1;

  bool moves() const { return a > 1 && b > 1; }
  std::int64_t to_file(std::int64_t i) const { return moved(i, a, b); }
  std::int64_t to_model(std::int64_t i) const { return moved(i, b, a); }

 private:
  std::int64_t moved(std::int64_t i, std::int64_t outer, std::int64_t inner) const {
    if (i < first || !moves()) return i;
    const std::int64_t inside = (i - first) % (a * b * d);
    const std::int64_t x = inside / (inner * d), y = inside / d % inner;
    return i - inside + (y * outer + x) * d + inside % d;
  }
};

/// Returns the order of the rows of a q or k whose rotary embedding's two halves alternate.
inline Order rotary_order(std::int64_t rows_per_head) { return {0, 2, rows_per_head / 2, 1}; }

/// The heads of linear attention. Those of values are grouped by key in the model. In the file the
/// first value of each key comes first.
struct LinearHeads {
  std::int64_t keys = 0, values = 0, key_size = 0;

  /// Returns the order of `size` rows or columns. Null if the heads do not divide them.
  std::optional<Order> order(Heads heads, std::int64_t size) const;
};

}  // namespace nvfp4::gguf
