#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "checkpoint/gguf/config.h"
#include "checkpoint/io/json_text.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

using Dimensions = std::vector<std::int64_t>;

/// The largest value of a size. Sums and products of sizes then fit 64 bits.
constexpr std::int64_t kMostSize = std::numeric_limits<std::int32_t>::max();

/// The kind of model that needs a key.
enum class Needed : std::uint8_t { always, with_experts, unless_all_experts, if_latent, never };

struct SizeKey {
  std::string_view name;
  Needed needed;
  bool may_be_zero = false;  ///< true if 0 says that the model has none
  bool by_layer = false;     ///< true if an array may have a size for each layer
};
constexpr SizeKey kSizeKeys[] = {
    {"block_count", Needed::always},
    {"context_length", Needed::always},
    {"embedding_length", Needed::always},
    {"feed_forward_length", Needed::unless_all_experts, false, true},
    {"attention.head_count", Needed::always},
    {"expert_count", Needed::with_experts, true},
    {"expert_used_count", Needed::with_experts, true},
    {"attention.kv_lora_rank", Needed::if_latent},
    {"attention.key_length", Needed::if_latent},
    {"attention.value_length", Needed::if_latent},
    {"attention.key_length_mla", Needed::if_latent},
    {"attention.value_length_mla", Needed::if_latent},
    {"rope.dimension_count", Needed::if_latent},
    {"attention.head_count_kv", Needed::never, false, true},
    {"attention.q_lora_rank", Needed::never},
    {"expert_feed_forward_length", Needed::never},
    {"expert_shared_feed_forward_length", Needed::never},
    {"expert_shared_count", Needed::never, true},
    {"leading_dense_block_count", Needed::never, true},
    {"vocab_size", Needed::never},
    {"ssm.inner_size", Needed::never},
    {"moe_latent_size", Needed::never},
    {"nextn_predict_layers", Needed::never, true},
    {"embedding_length_per_layer_input", Needed::never, true},
    {"attention.key_length_swa", Needed::never},
    {"attention.value_length_swa", Needed::never},
};

/// Returns the dimensions without leading ones, which other programs leave out.
std::span<const std::int64_t> without_ones(const Dimensions& shape) {
  const auto first = std::ranges::find_if(shape, [](std::int64_t d) { return d != 1; });
  return {first, shape.end()};
}

class Check {
 public:
  Check(const Header& header, const Architecture& architecture)
      : header_(header), architecture_(architecture) {
    for (const TensorInfo& t : header.tensors) tensors_.emplace(t.name, &t);
  }

  std::vector<Fault> run() {
    check_keys();
    if (faults_.empty()) check_layers();
    if (!faults_.empty()) return std::move(faults_);
    for (const NameGroup& group : architecture_.groups)
      for (const NamePair& pair : group.modules) check(pair, group);
    return std::move(faults_);
  }

 private:
  template <class... Values>
  void add(std::string_view code, std::string name, fmt::format_string<Values...> text,
           Values&&... values) {
    faults_.push_back({code, std::move(name), fmt::format(text, std::forward<Values>(values)...)});
  }

  std::string whole(std::string_view key) const {
    return fmt::format("{}.{}", architecture_.name, key);
  }

  const TensorInfo* find(std::string_view name) const {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : it->second;
  }

  bool is_needed(Needed needed) const {
    return needed == Needed::always || (needed == Needed::with_experts && architecture_.experts) ||
           (needed == Needed::unless_all_experts &&
            !(architecture_.experts &&
              header_.find(whole("expert_feed_forward_length")) != nullptr)) ||
           (needed == Needed::if_latent && architecture_.latent);
  }

  void check_keys() {
    std::vector<SizeKey> keys(std::begin(kSizeKeys), std::end(kSizeKeys));
    for (const NumberKey& number : architecture_.numbers)
      if (!number.factor) keys.push_back({number.file, Needed::always});
    for (const SizeKey& key : keys) {
      const std::string name = whole(key.name);
      const Value* value = header_.find(name);
      const bool needed = is_needed(key.needed);
      if (value == nullptr && needed) add("gguf-key", name, "has no key '{}'", name);
      if (value == nullptr) continue;
      const auto* array = key.by_layer ? std::get_if<ArrayPlace>(&value->value) : nullptr;
      const int least = array != nullptr || (key.may_be_zero && !needed) ? 0 : 1;
      bool is_good = array == nullptr || !array->numbers.empty();
      for (std::size_t i = 0; i < (array == nullptr ? 1 : array->numbers.size()); ++i) {
        const auto number = array == nullptr ? header_.integer(name) : header_.integer(name, i);
        is_good &= number && *number >= least && *number <= kMostSize;
      }
      if (!is_good)
        add("gguf-key", name, "key '{}' = {}, must be an integer from {} to {}", name,
            checkpoint::dump_line(json_of(*value)), least, kMostSize);
    }
    const std::string epsilon = whole(architecture_.epsilon.file);
    if (header_.find(epsilon) == nullptr) add("gguf-key", epsilon, "has no key '{}'", epsilon);
    if (!faults_.empty()) return;
    // Rotary embeddings cover the whole head, except those of latent attention and some models.
    const std::string rope = whole("rope.dimension_count");
    const auto dimensions = header_.integer(rope);
    const std::int64_t head = key_length();
    const bool is_wrong = dimensions && (architecture_.latent   ? *dimensions >= head
                                         : architecture_.rotary ? *dimensions > head
                                                                : *dimensions != head);
    if (is_wrong)
      add("gguf-key", rope, "key '{}' = {}, must be {}{} by {}", rope, *dimensions,
          architecture_.latent   ? "less than "
          : architecture_.rotary ? "at most "
                                 : "",
          head, fmt::join(used_, ", "));
  }

  /// Requires tensors of each layer that is counted, and of no other.
  void check_layers() {
    std::set<std::int64_t> layers;
    for (const TensorInfo& t : header_.tensors)
      if (const auto layer = layer_of(t.name)) layers.insert(*layer);
    layers_ = value("block_count");
    const auto with_tensors = static_cast<std::int64_t>(layers.size());
    if (!layers.empty() && with_tensors == layers_ && *layers.rbegin() == layers_ - 1) return;
    add("gguf-key", whole("block_count"),
        "key '{}' = {}, but {} layers have tensors, up to layer {}", whole("block_count"), layers_,
        with_tensors, layers.empty() ? -1 : *layers.rbegin());
  }

  /// Compares the tensors of a row in all layers.
  void check(const NamePair& pair, const NameGroup& group) {
    const Presence presence = group.presence;
    const bool in_layers = pair.file.starts_with('.');
    std::int64_t missing = 0, present = 0;
    std::string first_missing;
    bool differs = false;
    for (std::int64_t layer = 0; layer < (in_layers ? layers_ : 1); ++layer) {
      layer_ = static_cast<std::size_t>(layer);
      const std::string module = file_module_of(pair, layer);
      const TensorInfo* weight = weight_of(pair, layer);
      present += weight != nullptr;
      if (weight == nullptr && must_have(group, layer) && missing++ == 0)
        first_missing = module.ends_with(".bias") ? module : module + ".weight";
      if (weight != nullptr && !differs) differs = compare(*weight, pair.shape, false);
      const TensorInfo* bias = find(module + ".bias");
      if (bias != nullptr && !differs) differs = compare(*bias, pair.shape, true);
    }
    if (missing > 0 && (presence != Presence::together || present > 0))
      add("gguf-tensor", first_missing, "has no tensor '{}', which {} models have{}", first_missing,
          architecture_.model_type,
          in_layers ? fmt::format(" in each of {} layers; {} without", layers_, missing) : "");
  }

  const TensorInfo* weight_of(const NamePair& pair, std::int64_t layer) const {
    const std::string module = file_module_of(pair, layer);
    const TensorInfo* weight = find(module + ".weight");
    return weight == nullptr ? find(module) : weight;
  }

  /// Adds a fault and returns true if a tensor's shape is another than that of its row.
  bool compare(const TensorInfo& tensor, const Shape& row, bool is_bias) {
    Dimensions shape;
    used_.clear();
    for (const Size size : row)
      if (size != Size::none) shape.push_back(value(size));
    if (is_bias && shape.size() > 1) shape.pop_back();
    if (std::ranges::equal(without_ones(tensor.shape), without_ones(shape))) return false;
    add("gguf-key", tensor.name, "tensor '{}': [{}], must be [{}] by {}", printable(tensor.name),
        fmt::join(tensor.shape, ", "), fmt::join(shape, ", "), fmt::join(used_, ", "));
    return true;
  }

  bool is_sparse(std::int64_t layer) const {
    if (!architecture_.experts) return false;
    if (architecture_.routes)
      return layer >= header_.integer(whole("leading_dense_block_count")).value_or(0);
    const std::string prefix = fmt::format("blk.{}.", layer);
    return find(prefix + "ffn_gate_inp.weight") != nullptr ||
           find(prefix + "ffn_up.weight") == nullptr;
  }

  /// Reports whether a layer has linear attention: it has one of its tensors.
  bool is_linear(std::int64_t layer) const {
    return find(fmt::format("blk.{}.ssm_a", layer)) != nullptr;
  }

  bool must_have(const NameGroup& group, std::int64_t layer) const {
    const auto number = [&](std::string_view key) {
      return header_.integer(whole(key)).value_or(0);
    };
    switch (group.presence) {
      case Presence::all:
        return true;
      case Presence::optional:
        return false;
      case Presence::dense:
        return !is_sparse(layer);
      case Presence::sparse:
      case Presence::together:
        return is_sparse(layer);
      case Presence::shared:
        return is_sparse(layer) && number("expert_shared_count") > 0;
      case Presence::low_rank:
        return number("attention.q_lora_rank") > 0;
      case Presence::full_rank:
        return number("attention.q_lora_rank") == 0;
      case Presence::linear:
        return is_linear(layer);
      case Presence::quadratic:
        return !is_linear(layer);
      case Presence::complete:
        return std::ranges::any_of(
            group.modules, [&](const NamePair& pair) { return weight_of(pair, layer) != nullptr; });
    }
    return true;
  }

  /// Returns the number of a key and adds the key to `used_`. Null if the file does not have it or
  /// has 0.
  std::optional<std::int64_t> given(std::string_view key) {
    const auto number = header_.integer(whole(key), layer_);
    if (!number || *number == 0) return std::nullopt;
    std::string text = fmt::format("'{}' = {}", whole(key), *number);
    if (std::ranges::find(used_, text) == used_.end()) used_.push_back(std::move(text));
    return number;
  }
  std::int64_t value(std::string_view key) { return given(key).value_or(0); }

  std::int64_t heads() { return value("attention.head_count"); }
  std::int64_t kv_heads() {
    const auto number = given("attention.head_count_kv");
    return number ? *number : heads();
  }
  std::int64_t per_head(std::string_view key) {
    if (architecture_.latent) return value(fmt::format("{}_mla", key));
    const bool sliding =
        header_.integer(whole("attention.sliding_window_pattern"), layer_) == std::int64_t{1};
    const std::string swa = fmt::format("{}_swa", key);
    if (const auto number = sliding ? given(swa) : std::nullopt) return *number;
    if (const auto number = given(key)) return *number;
    const std::int64_t all = value("embedding_length");  // named before the number of heads
    return all / heads();
  }
  std::int64_t key_length() { return per_head("attention.key_length"); }
  std::int64_t value_length() { return per_head("attention.value_length"); }
  std::int64_t expert_size() {
    if (const auto number = given("expert_feed_forward_length")) return *number;
    const std::int64_t all = value("feed_forward_length");
    return all / value("expert_used_count");
  }

  /// Returns a dimension. Source of the values without keys: llama.cpp, src/llama-model.cpp.
  std::int64_t value(Size size) {
    std::int64_t first = 0;  // factors and terms are computed in the order in which they are named
    switch (size) {
      case Size::none:
      case Size::one:
        return 1;
      case Size::vocabulary: {
        if (const auto number = given("vocab_size")) return *number;
        const TensorInfo* table = find("token_embd.weight");
        used_.emplace_back("the rows of 'token_embd.weight'");
        return table == nullptr || table->shape.empty() ? 0 : table->shape[0];
      }
      case Size::embedding:
        return value("embedding_length");
      case Size::feed_forward:
        return value("feed_forward_length");
      case Size::gate_and_up:
        return 2 * value("feed_forward_length");
      case Size::heads:
        return heads();
      case Size::queries:
        first = heads();
        return first * key_length();
      case Size::gated_queries:
        return 2 * value(Size::queries);
      case Size::fused:
        first = value(Size::queries);
        first += value(Size::keys);
        return first + value(Size::values);
      case Size::keys:
        first = kv_heads();
        return first * key_length();
      case Size::values:
        first = kv_heads();
        return first * value_length();
      case Size::outputs:
        first = heads();
        return first * value_length();
      case Size::head:
        return key_length();
      case Size::experts:
        return value("expert_count");
      case Size::expert_size:
        return expert_size();
      case Size::shared_size: {
        if (architecture_.routes) {
          first = value("expert_shared_count");
          return first * expert_size();
        }
        const auto number = given("expert_shared_feed_forward_length");
        return number ? *number : value("feed_forward_length");
      }
      case Size::query_rank:
        return value("attention.q_lora_rank");
      case Size::latent:
        return value("attention.kv_lora_rank");
      case Size::latent_rope:
        first = value("attention.kv_lora_rank");
        return first + value("rope.dimension_count");
      case Size::latent_key:
        first = key_length();
        return first - value("rope.dimension_count");
      case Size::latent_value:
        return value_length();
      case Size::indexer_queries:
        first = value("attention.indexer.head_count");
        return first * value("attention.indexer.key_length");
      case Size::indexer_heads:
        return value("attention.indexer.head_count");
      case Size::indexer_head:
        return value("attention.indexer.key_length");
      case Size::linear_fused:
        first = value("ssm.state_size");
        first *= 2 * value("ssm.group_count");
        return first + value("ssm.inner_size");
      case Size::linear_values:
        return value("ssm.inner_size");
      case Size::linear_heads:
        return value("ssm.time_step_rank");
      case Size::linear_gates:
        return 2 * value("ssm.time_step_rank");
      case Size::linear_head:
        return value("ssm.state_size");
      case Size::kernel:
        return value("ssm.conv_kernel");
      case Size::mamba_inputs:
        first = value("ssm.inner_size");
        return first + value(Size::mamba_channels) + value("ssm.time_step_rank");
      case Size::mamba_channels:
        first = value("ssm.inner_size");
        return first + 2 * value("ssm.group_count") * value("ssm.state_size");
      case Size::mamba_groups:
        return value("ssm.group_count");
      case Size::mamba_group:
        first = value("ssm.inner_size");
        return first / std::max<std::int64_t>(value("ssm.group_count"), 1);
      case Size::embedding_pair:
        return 2 * value("embedding_length");
      case Size::layer_input:
        return value("embedding_length_per_layer_input");
      case Size::all_layer_inputs:
        first = value("embedding_length_per_layer_input");
        return first * value("block_count");
      case Size::expert_input: {
        const auto number = given("moe_latent_size");
        return number ? *number : value("embedding_length");
      }
    }
    return 0;
  }

  const Header& header_;
  const Architecture& architecture_;
  std::unordered_map<std::string_view, const TensorInfo*> tensors_;
  std::int64_t layers_ = 0;
  std::size_t layer_ = kMaxNumbers;  ///< the layer of the last dimensions; at first none
  std::vector<std::string> used_;    ///< keys and numbers of the last dimensions
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> faults_of(const Header& header, const Architecture& architecture) {
  return Check(header, architecture).run();
}

void require_whole(const Header& header, const Architecture& architecture,
                   const std::string& file) {
  const std::vector<Fault> faults = faults_of(header, architecture);
  if (!faults.empty()) throw FormatError(fmt::format("{}: {}", file, faults.front().text));
}

void require_model(const Header& header, const std::string& file) {
  const std::string* type = header.text("general.type");
  require<UnsupportedError>(type == nullptr || *type == "model",
                            "{}: 'general.type' = '{}', must be model", file,
                            type == nullptr ? "" : printable(*type));
}

}  // namespace nvfp4::gguf
