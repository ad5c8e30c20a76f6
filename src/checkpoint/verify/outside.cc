// Checks the embedding, head and norms of a language model, which stay unquantized.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::int64_t kSampledRows = 64;
/// Norms of a layer that every layer has if one has it.
constexpr std::string_view kLayerNorms[] = {"input_layernorm", "post_attention_layernorm"};
/// Norms behind the layers. Other norms beside layers, such as of inputs per layer, have sizes of
/// their own.
constexpr std::string_view kFinalNorms[] = {
    "norm",       "ln_f",   "final_layernorm", "final_layer_norm",
    "final_norm", "norm_f", "embedding_norm"};  // the last: LFM2
constexpr std::string_view kEmbeddings[] = {"embed_tokens", "word_embeddings", "wte", "embed_in",
                                            "tok_embeddings"};
constexpr std::string_view kHeads[] = {"lm_head", "embed_out"};

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool is_one_of(std::span<const std::string_view> names, std::string_view module) {
  return std::ranges::find(names, module.substr(module.rfind('.') + 1)) != names.end();
}

bool is_norm(const LogicalTensor& t) {
  const std::string module = t.module();
  const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
  return t.shape.size() == 1 && (has(last, "norm") || has(last, "ln_"));
}

class OutsideCheck {
 public:
  OutsideCheck(const Subject& subject, bool full, Findings& findings)
      : subject_(subject), full_(full), findings_(findings) {
    if (!subject.config.is_object()) return;
    config_ = &language_model_config(subject.config);
    hidden_ = integer_of(*config_, "hidden_size");
    count_ = integer_of(*config_, "num_hidden_layers");
    for (const auto& [key, value] : config_->items())
      if (has(key, "vocab_size") && value.is_number_integer()) {
        const auto size = value.template get<std::int64_t>();
        if (size > 0) vocabulary_ = vocabulary_ == 0 ? size : std::min(vocabulary_, size);
      }
  }

  void run() {
    for (const LogicalTensor& t : subject_.tensors)
      if (!subject_.defective.contains(t.name)) see(t);
    if (is_whole()) {
      check_vocabulary();
      check_norms();
    }
  }

 private:
  void see(const LogicalTensor& t) {
    const std::string module = t.module();
    if (const auto place = layer_place(t.name)) {
      layers_.insert(place->number);
      for (const std::string_view norm : kLayerNorms)
        if (has(place->rest, norm)) norms_[norm].insert(place->number);
      if (is_norm(t)) {
        if (is_one_of(kLayerNorms, module)) check_norm_size(t);
        check_values(t, t.elements());
      }
      return;
    }
    if (!is_beside_layers(t.name)) {
      has_embedding_ |= has(module, "emb");
      return;
    }
    if (is_norm(t)) {
      has_final_norm_ = true;
      if (is_one_of(kFinalNorms, module)) check_norm_size(t);
      check_values(t, t.elements());
    }
    has_embedding_ |= has(module, "emb") || has(module, "wte");
    if (t.shape.size() != 2) return;
    const bool embedding = is_one_of(kEmbeddings, module), head = is_one_of(kHeads, module);
    has_head_ |= head || (!has(module, "emb") && !has(module, "wte"));
    if (!embedding && !head) return;
    if (t.outputs() < vocabulary_)
      findings_.add("wrong-size", t.name, "{}: {} rows, {} has vocab_size = {}", t.data.describe(),
                    t.outputs(), subject_.config_file, vocabulary_);
    if (t.is_plain()) check_values(t, t.cols());
  }

  void check_norm_size(const LogicalTensor& t) {
    if (hidden_ > 0 && t.elements() != hidden_)
      findings_.add("wrong-size", t.name, "{}: {} elements, {} has hidden_size = {}",
                    t.data.describe(), t.elements(), subject_.config_file, hidden_);
  }

  /// Checks that values are finite, and that rows of a matrix differ. It reads some rows.
  void check_values(const LogicalTensor& t, std::int64_t cols) {
    if (!t.is_plain() || !t.readable() || cols <= 0) return;
    const std::int64_t rows = t.elements() / cols;
    const std::int64_t step = full_ ? 1 : std::max<std::int64_t>(1, rows / kSampledRows);
    std::vector<float> first, row(static_cast<std::size_t>(cols));
    bool differ = rows < 2;
    for (std::int64_t r = 0; r < rows; r += step) {
      t.read(r * cols, row);
      if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); }))
        return findings_.add("not-finite", t.name, "{}: row {} has NaN or infinity",
                             t.data.describe(), r);
      if (first.empty()) first = row;
      differ |= row != first;
    }
    if (!differ)
      findings_.add("rows-repeat", t.name, "{}: each of {} rows that were read is the same",
                    t.data.describe(), (rows + step - 1) / step);
  }

  /// Reports whether the files are a whole language model, whose layers have usual names.
  bool is_whole() const {
    if (config_ == nullptr || !subject_.folder || !subject_.complete) return false;
    if (count_ <= 0 || hidden_ <= 0 || vocabulary_ <= 0 || std::ssize(layers_) < count_)
      return false;
    return *layers_.begin() == 0 && layers_.contains(count_ - 1) &&
           has(architecture(), "ForCausalLM");
  }

  std::string architecture() const {
    const auto names = subject_.config.find("architectures");
    const bool is_list = names != subject_.config.end() && names->is_array() && !names->empty();
    return is_list && names->front().is_string() ? names->front().get<std::string>() : "";
  }

  void check_vocabulary() {
    const std::string& path = subject_.config_file;
    if (!has_embedding_)
      findings_.add("missing-embedding", "embed_tokens",
                    "{}: vocab_size = {}, and no tensor is an embedding", path, vocabulary_);
    if (has_head_) return;
    const Json* tie = nullptr;
    for (const Json* config : {&subject_.config, config_})
      if (const Json& found = member_of(*config, "tie_word_embeddings"); found.is_boolean())
        tie = &found;
    if (tie == nullptr)
      findings_.add("head-tied", "lm_head", "{}: no tie_word_embeddings, and no tensor is a head",
                    path);
    else if (!tie->get<bool>())
      findings_.add("missing-head", "lm_head",
                    "{}: tie_word_embeddings = false, and no tensor is a head", path);
  }

  void check_norms() {
    if (!norms_["input_layernorm"].empty() && !has_final_norm_)
      findings_.add("missing-norm", "norm", "no norm behind the last layer");
    for (const auto& [norm, layers] : norms_)
      for (std::int64_t l = 0; l < count_ && !layers.empty(); ++l)
        if (!layers.contains(l)) {
          findings_.add("missing-norm", fmt::format("layers.{}.{}", l, norm),
                        "layers.{} has no {}, layers.{} has", l, norm, *layers.begin());
          break;
        }
  }

  const Subject& subject_;
  bool full_;
  Findings& findings_;
  const Json* config_ = nullptr;                          ///< of the language model
  std::int64_t hidden_ = 0, count_ = 0, vocabulary_ = 0;  ///< 0: not known
  std::set<std::int64_t> layers_;
  std::map<std::string_view, std::set<std::int64_t>> norms_;  ///< layers that have each norm
  bool has_embedding_ = false, has_head_ = false, has_final_norm_ = false;
};

}  // namespace

void check_outside(const Subject& subject, bool full, Findings& findings) {
  OutsideCheck(subject, full, findings).run();
}

}  // namespace nvfp4::checkpoint
