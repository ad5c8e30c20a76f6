#include "checkpoint/verify/derived.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "checkpoint/families/model_config.h"

namespace nvfp4::checkpoint {
namespace {

/// A buffer that older versions of transformers saved and that the configuration determines.
struct Buffer {
  std::string_view name;       ///< last components of the name
  std::size_t dimensions = 0;  ///< rank that tells a buffer from a weight; 0: any
};
constexpr Buffer kBuffers[] = {
    {"inv_freq"},
    {"position_ids"},
    {"token_type_ids"},
    {"cos_cached"},
    {"sin_cached"},
    {"masked_bias"},
    {"attn.bias", 4},
    {"attention.bias", 4},
    {"rotary_emb.cos"},
    {"rotary_emb.sin"},
    {"relative_position_index"},
};

/// Vocabulary tables. Any of them may be the same tensor as another.
constexpr std::string_view kTables[] = {
    "lm_head.weight",   "embed_tokens.weight",    "shared.weight",
    "wte.weight",       "word_embeddings.weight", "embed_in.weight",
    "embed_out.weight", "decoder.weight",         "output_projection.weight"};

/// Reports whether `name` is `part` or ends with a dot and `part`.
bool ends_with(std::string_view name, std::string_view part) {
  return name.ends_with(part) &&
         (name.size() == part.size() || name[name.size() - part.size() - 1] == '.');
}

bool is_table(const std::string& name) {
  return std::ranges::any_of(kTables, [&](std::string_view t) { return ends_with(name, t); });
}

bool same_bytes(const StoredTensor& a, const StoredTensor& b) {
  constexpr std::uint64_t kPart = 1 << 20;
  std::vector<std::byte> x, y;
  for (std::uint64_t at = 0; at < a.info->bytes; at += kPart) {
    const auto n = static_cast<std::size_t>(std::min(kPart, a.info->bytes - at));
    x.resize(n);
    y.resize(n);
    a.read(static_cast<std::int64_t>(at), x);
    b.read(static_cast<std::int64_t>(at), y);
    if (x != y) return false;
  }
  return true;
}

}  // namespace

DerivedTensors::DerivedTensors(const CheckpointReader& source, const CheckpointReader& made,
                               const Subject& subject)
    : source_(source) {
  constexpr std::size_t kMost = 16;  // a model has one to three
  for (const LogicalTensor& t : source.tensors())
    if (tables_.size() < kMost && t.is_plain() && is_table(t.name) && made.find(t.name) != nullptr)
      tables_.push_back(&t);
  const auto caches = [](const std::optional<Declared>& declared) {
    return declared && !cache_type(*declared).name.empty();
  };
  if (!caches(subject.in_config) && !caches(subject.in_hf_quant))
    undeclared_ = CacheScales(source.tensors(), {subject.model_type}, true);
  if (!subject.config.is_object()) return;
  for (const auto* level : {&subject.config, &language_model_config(subject.config)}) {
    const auto tie = level->find("tie_word_embeddings");
    if (tie != level->end() && tie->is_boolean() && !tie->get<bool>()) may_be_tied_ = false;
  }
}

bool DerivedTensors::contains(const std::string& name) const {
  const LogicalTensor* t = source_.find(name);
  if (t == nullptr || !t->is_plain()) return false;
  const bool buffer = std::ranges::any_of(kBuffers, [&](const Buffer& b) {
    return ends_with(name, b.name) && (b.dimensions == 0 || b.dimensions == t->shape.size());
  });
  return buffer || undeclared_.find(*t) || (is_table(name) && is_tied(*t));
}

bool DerivedTensors::is_tied(const LogicalTensor& t) const {
  return may_be_tied_ && std::ranges::any_of(tables_, [&](const LogicalTensor* other) {
           return other->name != t.name && other->shape == t.shape &&
                  other->data.info->dtype == t.data.info->dtype && same_bytes(t.data, other->data);
         });
}

}  // namespace nvfp4::checkpoint
