#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/families/gguf_names.h"
#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/header.h"
#include "nvfp4/checkpoint/safetensors.h"

/// Names of a model's tensors in llama.cpp, and their order of rows.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// Returns the architectures that llama.cpp supports, first those of families that were added.
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
  Form form = Form::same;
};

/// Returns the shape of a tensor in the file. `groups`: the groups of Mamba.
std::vector<std::int64_t> file_shape(Form form, std::vector<std::int64_t> shape,
                                     std::int64_t groups);
/// Returns the shape of a tensor in the model.
std::vector<std::int64_t> model_shape(Form form, std::vector<std::int64_t> shape);

/// Returns "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". A tensor that is
/// split has several places, and one without a name has none.
std::vector<Place> places_of(const Architecture& architecture, std::string_view model_name);
/// Returns the first place, or null.
std::optional<Place> place_of(const Architecture& architecture, std::string_view model_name);
/// Returns the model's name of a tensor of the file, with number `expert` if it contains one. Null
/// if it has none.
std::optional<std::string> model_name_of(const Architecture& architecture,
                                         std::string_view file_name, std::int64_t expert = 0);
/// Returns "model.layers.48.eh_proj.weight" for "mtp.fc.weight" of a model with 48 layers: the file
/// has a module for multi-token prediction as the layer behind them. Other names stay.
std::string as_layer(const Architecture& architecture, const std::string& model_name,
                     std::int64_t layers);
/// Returns the name in the model of a tensor that may be in that layer.
std::string as_module(const Architecture& architecture, const std::string& name,
                      std::int64_t layers);
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
  std::int64_t to_file(std::int64_t i) const {
    if (i < first || !moves()) return i;
    const std::int64_t inside = (i - first) % (a * b * d);
    const std::int64_t x = inside / (b * d), y = inside / d % b;
    return i - inside + (y * a + x) * d + inside % d;
  }
};

/// The rows that a tensor of the file has of one of the model. They are `size` rows of each
/// `period`, from row `begin` of it, and lie in the file from row `to` on.
struct Run {
  std::int64_t period = 0, begin = 0, size = 0, to = 0;

  bool is_whole() const { return period == 0; }
  /// Returns the row in the file, or null if the row is not in this tensor.
  std::optional<std::int64_t> to_file(std::int64_t row) const {
    const std::int64_t inside = row % period - begin;
    if (inside < 0 || inside >= size) return std::nullopt;
    return to + row / period * size + inside;
  }
  /// Returns the number of rows, from this one on, up to the next begin or end of a run.
  std::int64_t left(std::int64_t row) const {
    const std::int64_t inside = row % period;
    return (inside < begin ? begin : inside < begin + size ? begin + size : period) - inside;
  }
};

/// Returns the order of the rows of a q or k whose rotary embedding's two halves alternate.
inline Order rotary_order(std::int64_t rows_per_head) { return {0, 2, rows_per_head / 2, 1}; }

inline bool is_latent(Heads heads) {
  return heads == Heads::latent_keys || heads == Heads::latent_values;
}
inline bool is_split(Heads heads) {
  return heads == Heads::grouped_qkv || heads == Heads::grouped_gate || is_latent(heads);
}

/// The rows that a tensor of the file has of one of the model, which is split.
struct Split {
  std::int64_t groups = 0;  ///< number of periods of the runs
  std::vector<Run> runs;
  bool stacked = false, transposed = false;  ///< a matrix for each group, which may be transposed

  /// Returns the number of rows in the model.
  std::int64_t model_rows() const { return groups * runs.front().period; }
  /// Returns the number of rows that the tensor of the file has of them.
  std::int64_t rows() const { return runs.back().to + groups * runs.back().size; }
  /// Returns the shape of the tensor of the file.
  std::vector<std::int64_t> shape(std::int64_t cols) const {
    const std::int64_t size = runs.back().size;
    return transposed ? std::vector<std::int64_t>{groups, cols, size}
           : stacked  ? std::vector<std::int64_t>{groups, size, cols}
                      : std::vector<std::int64_t>{rows(), cols};
  }
};

/// The heads of linear attention. Those of values are grouped by key in the model. In the file the
/// first value of each key comes first.
struct LinearHeads {
  std::int64_t keys = 0, values = 0, key_size = 0;

  /// Returns the order of `size` rows or columns. Null if the heads do not divide them.
  std::optional<Order> order(Heads heads, std::int64_t size) const;
  /// Returns the rows of a tensor that is split. Null if the heads are none.
  std::optional<Split> split(Heads heads) const;
};

/// The heads of latent attention: each is a key and a value, decompressed from `latent` numbers.
struct LatentHeads {
  std::int64_t heads = 0, latent = 0, key = 0, value = 0;

  /// Returns the rows of kv_b_proj that one tensor has. Null for sizes that no model has.
  std::optional<Split> split(Heads part) const;
};

/// The conversion of a tensor from the file. Each unit has in() bytes in the file and out() bytes
/// here.
struct Origin {
  enum class Kind : std::uint8_t {
    copy,
    codes,
    scales,
    mx_codes,
    mx_exponents,
    bf16,
    f16,
    f32,
    q8_0,
    one,
  };
  Kind kind = Kind::copy;
  const TensorInfo* stored = nullptr;
  std::uint64_t begin = 0;        ///< offset in the bytes of `stored`
  std::uint64_t row_units = 0;    ///< units of a row, if rows or columns are in another order
  Order rows = {}, columns = {};  ///< columns are counted in units
  Change change = Change::none;
  Run run = {};                          ///< rows of the model's tensor that come from here
  std::uint64_t transposed_columns = 0;  ///< columns of the model, which the file has as rows; or 0

  std::uint64_t in() const {
    return kind == Kind::codes || kind == Kind::scales            ? kBlockBytes
           : kind == Kind::q8_0                                   ? kQ8BlockBytes
           : kind == Kind::mx_codes || kind == Kind::mx_exponents ? kMxBlockBytes
           : kind == Kind::copy                                   ? 1
                                                                  : 4;
  }
  std::uint64_t out() const {
    switch (kind) {
      case Kind::codes:
        return kBlockCodes;
      case Kind::scales:
      case Kind::f32:
      case Kind::one:
        return 4;
      case Kind::bf16:
      case Kind::f16:
        return 2;
      case Kind::q8_0:
        return kQ8Block * sizeof(float);
      case Kind::mx_codes:
        return kMxBlock / 2;
      case Kind::mx_exponents:
      case Kind::copy:
        break;
    }
    return 1;
  }
};

/// Returns the dtype of a type without blocks, or null.
std::optional<safetensors::DType> dtype_of(const Type& type);

/// Returns the order and the change of a tensor, without its place. `model_name` is one of the
/// architecture's. Throws FormatError with `file` if the tensor's size contradicts the numbers of
/// heads in the keys.
Origin origin_of(const Header& header, const Architecture& architecture, const TensorInfo& t,
                 const std::string& model_name, const std::string& file);

/// Returns the rows of a tensor that is a part of one of the model. Null for others. Throws as
/// origin_of().
std::optional<Split> split_of(const Header& header, const Architecture& architecture,
                              const TensorInfo& t, const std::string& model_name,
                              const std::string& file);

/// Counts the columns of `origin` in its units. Throws UnsupportedError if a head ends within one.
void count_columns(const TensorInfo& t, Origin& origin, const std::string& file);

}  // namespace nvfp4::gguf
