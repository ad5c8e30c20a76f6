#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// The names of a family's tensors in llama.cpp, and the changes that llama.cpp needs.
/// Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py, conversion/.
namespace nvfp4::gguf {

/// A dimension of a tensor, as the keys of a file give it. gguf/faults.cc computes it.
enum class Size : std::uint8_t {
  none,
  one,
  vocabulary,
  embedding,
  feed_forward,
  gate_and_up,  ///< twice the feed-forward length
  heads,
  queries,        ///< rows of all heads
  gated_queries,  ///< rows of all heads, and their gates
  keys,
  values,
  fused,    ///< queries, keys and values
  outputs,  ///< columns of attn_output
  head,
  experts,
  expert_size,
  shared_size,
  query_rank,
  latent,        ///< compressed keys and values
  latent_rope,   ///< compressed keys and values, and the rotary part of the keys
  latent_key,    ///< decompressed key of a head, without its rotary part
  latent_value,  ///< decompressed value of a head
  indexer_queries,
  indexer_heads,
  indexer_head,
  // Linear attention.
  linear_fused,   ///< queries, keys and values of all heads
  linear_values,  ///< values of all heads
  linear_heads,   ///< heads of values
  linear_gates,   ///< twice the heads of values
  linear_head,
  kernel,  ///< of the convolution
  // Mamba.
  mamba_inputs,    ///< gates, values, keys, queries and time steps
  mamba_channels,  ///< values, keys and queries
  mamba_groups,
  mamba_group,   ///< values of a group
  expert_input,  ///< columns of the first matrix of an expert
  // Embeddings for each layer.
  layer_input,
  all_layer_inputs,
  embedding_pair,  ///< of a token and of the hidden state, for multi-token prediction
};

using Shape = std::array<Size, 3>;  ///< followed by `none`

/// The change of a tensor's numbers on the way into the file. output/gguf_sink.cc applies it, and
/// gguf/view.cc reverts it.
enum class Change : std::uint8_t {
  none,
  plus_one,   ///< x + 1, for norms that multiply by 1 + x
  minus_exp,  ///< -exp(x)
};

/// The part of a tensor in which heads change their order, or become a tensor of their own.
/// LinearHeads and LatentHeads in gguf/names.h compute the order.
enum class Heads : std::uint8_t {
  none,
  rows,
  last_rows,  ///< rows after those of queries and keys
  columns,
  /// The heads of keys are groups of rows: queries, keys, values and gates. The first three become
  /// one tensor.
  grouped_qkv,
  grouped_gate,  ///< the gates of such groups
  /// The heads of latent attention are groups of rows: keys and values. The file has a matrix for
  /// each head, and that of the keys is transposed.
  latent_keys,
  latent_values,
};

/// The change of a tensor's shape on the way into the file. file_shape() in gguf/names.h applies
/// it.
enum class Form : std::uint8_t {
  same,
  column,    ///< a last dimension of 1 is added
  grouped,   ///< a vector becomes a row for each of the groups of Mamba
  squeezed,  ///< the dimension of 1 of a convolution is left out
};

/// The two names of a module. "{e}" stands for an expert. A name that begins with a dot belongs to
/// a layer: ".mlp.up_proj" is "model.layers.7.mlp.up_proj", and ".ffn_up" is "blk.7.ffn_up".
struct NamePair {
  std::string_view model, file;
  Shape shape = {};  ///< dimensions of the file's weight
  /// llama.cpp multiplies by a `.scale` beside the weight. Only such a module can be NVFP4.
  bool scaled = false;
  Change change = Change::none;
  Heads heads = Heads::none;
  Form form = Form::same;

  constexpr NamePair with(Change c) const { return {model, file, shape, scaled, c, heads, form}; }
  constexpr NamePair with(Heads h) const { return {model, file, shape, scaled, change, h, form}; }
  constexpr NamePair with(Form f) const { return {model, file, shape, scaled, change, heads, f}; }
};

/// The layers in which the tensors of a group must be present.
enum class Presence : std::uint8_t {
  all,
  optional,   ///< no layer
  dense,      ///< layers without experts
  sparse,     ///< layers with experts
  together,   ///< layers with experts, if one layer has it
  shared,     ///< layers with experts, if some experts are shared
  low_rank,   ///< all, if queries have a rank
  full_rank,  ///< all, if queries have none
  linear,     ///< layers with linear attention
  quadratic,  ///< layers without linear attention
  complete,   ///< layers that have another module of the group
};

/// Modules that a model has together.
struct NameGroup {
  std::span<const NamePair> modules;
  Presence presence = Presence::all;
};

/// A number of the model's graph, by its names in config.json and in the file.
struct NumberKey {
  std::string_view model, file;
  bool factor = false;  ///< FP32, and 1 where config.json has none; otherwise a size
};

/// A part of the module for multi-token prediction, and its name in the layer that it becomes.
struct PredictionName {
  std::string_view model, layer;
};

/// The properties of an architecture beside its names.
struct Traits {
  /// The start of the names of the language model's modules, instead of "model.".
  std::string_view prefix = "model.";
  /// Rows of q and k are reordered so that the two halves of a rotary embedding alternate.
  bool interleaves = false;
  bool experts = false;
  /// The model has multi-head latent attention: all heads of the graph share the latent keys.
  bool latent = false;
  /// The file has the keys of DeepSeek's router: factor, norm, dense layers, shared experts.
  bool routes = false;
  /// The router's scores are sigmoids instead of a softmax.
  bool sigmoid = false;
  /// The graph's fixed choice to normalize the weights of the chosen experts to the sum 1, or not
  /// to. Null: the choice is not fixed.
  std::optional<bool> normalizes = {};
  /// The graph multiplies by the `.scale` of MLPs and experts. Without that they cannot be NVFP4.
  bool scales_mlp = true;
  /// The share of a head that rotary embeddings cover, where config.json has none. Null: they
  /// always cover all of it.
  std::optional<double> rotary = {};
  std::string_view activation = "silu";
  std::span<const NumberKey> numbers = {};
  /// The epsilon of the norms.
  NumberKey epsilon = {"rms_norm_eps", "attention.layer_norm_rms_epsilon"};
  double default_epsilon = 1e-6;  ///< of transformers, where config.json has none
  /// Layers for multi-token prediction follow the others.
  bool predicts = false;
  /// The parts of a module that becomes such a layer, special names before general ones. Empty: the
  /// model has layers, too.
  std::span<const PredictionName> prediction = {};
  /// config.json can be made of the keys of a file from another program.
  bool foreign = true;
};

/// A kind of model in llama.cpp.
struct Architecture : Traits {
  constexpr Architecture(std::string_view model_type, std::string_view class_name,
                         std::string_view name, std::span<const NameGroup> groups,
                         const Traits& traits = {})
      : Traits(traits),
        model_type(model_type),
        class_name(class_name),
        name(name),
        groups(groups) {}

  std::string_view model_type;  ///< model_type of config.json; one type and no pattern
  std::string_view class_name;  ///< name in "architectures" of config.json
  std::string_view name;        ///< general.architecture
  std::span<const NameGroup> groups;
};

/// Returns the table of architectures. They may share a GGUF name and both have experts, or both
/// have none. A file of unknown origin then gets the one with its kind of scores. If there is none,
/// it gets the first.
std::span<const Architecture> known_architectures();

}  // namespace nvfp4::gguf
