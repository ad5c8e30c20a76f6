// Checks how transformers 5 reads a compressed-tensors checkpoint.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <span>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/transformers_names.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/verify/transformers_init.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

std::string text_at(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>() : "";
}

class TransformersCheck {
 public:
  TransformersCheck(const Subject& subject, Findings& findings)
      : subject_(subject), findings_(findings), weights_(subject.nvfp4()) {
    if (!subject.config.is_object()) return;
    types_ = {text_at(subject.config, "model_type"),
              text_at(language_model_config(subject.config), "model_type")};
    part_types_ = types_;
    collect_parts(subject.config, part_types_, 0);
  }

  void run() {
    check_experts();
    check_initialization();
    check_taken_apart();
    check_kept();
    check_vocabulary();
  }

 private:
  /// Collects the types of nested models. For example, "vlm_config" may contain a "text_config".
  void collect_parts(const Json& config, std::set<std::string>& types, int depth) {
    constexpr int kDeepest = 4;
    if (depth == kDeepest) return;
    for (const auto& [key, part] : config.items()) {
      if (!part.is_object()) continue;
      const std::string_view tower = tower_of(key);
      std::set<std::string>& of = tower.empty() ? types : tower_types_[tower];
      if (std::string type = text_at(part, "model_type"); !type.empty()) of.insert(std::move(type));
      collect_parts(part, of, depth + 1);
    }
  }

  /// Checks global scales of experts, with one finding for each layer. Source:
  /// huggingface/transformers#48371. A global scale of 1 may be lost. Llama 4's experts become
  /// single layers: MODULES_TO_PATCH_FOR_QUANTIZATION in quantizers/base.py.
  void check_experts() {
    const std::vector<std::string> types(types_.begin(), types_.end());
    if (std::ranges::any_of(families_of(types), &Family::unstacked_by_transformers)) return;
    std::set<std::string> named;
    for (const LogicalTensor* t : weights_) {
      const std::string layer(expert_layer_of(t->module()));
      const bool matters =
          !layer.empty() && std::ranges::any_of(t->globals, [](const GlobalScale& g) {
            return g.multiplier != 1.0f;
          });
      if (matters && named.insert(layer).second)
        add(Verdict::misreads, "experts-lose-global-scale", layer,
            fmt::format("{}: transformers 5 stacks these experts and does not read their "
                        "weight_global_scale ({} in {})",
                        layer, t->globals.front().divisor, t->module()));
    }
  }

  /// Checks the initialization, with one finding. Loading initializes the model first, and
  /// compressed layers have no weight.
  void check_initialization() {
    const TransformersNames names(subject_.model_type);
    for (const LayersOfType& reads : kInitReads) {
      const std::string type(reads.model_type);
      if (!is_part(type)) continue;
      for (const LogicalTensor* t : weights_) {
        const std::string module = t->module();
        if (!is_part_of(type, module)) continue;
        // The list has the names of transformers.
        const std::string name = names.name_of(module), last = name.substr(name.rfind('.') + 1);
        if (!is_word_of(last, reads.layers)) continue;
        return add(Verdict::refuses, "init-needs-weight", module,
                   fmt::format("{}: quantized, and transformers initializes {} of {} by its weight",
                               module, last, reads.model_type));
      }
    }
  }

  void check_taken_apart() {
    find_split(kTakenApart, Verdict::misreads, "one of them gets its weight_global_scale");
    find_split(kSplitFails, Verdict::refuses, "stops at its weight_global_scale");
  }

  /// Reports the first weight in the table.
  void find_split(std::span<const LayersOfType> table, Verdict verdict, std::string_view effect) {
    for (const LayersOfType& split : table) {
      if (!part_types_.contains(std::string(split.model_type))) continue;
      for (const LogicalTensor* t : weights_) {
        const std::string module = t->module();
        const std::string last = module.substr(module.rfind('.') + 1);
        if (is_word_of(last, split.layers))
          return add(verdict, "split-loses-global-scale", module,
                     fmt::format("{}: transformers 5 makes several modules of it, and {}", module,
                                 effect));
      }
    }
  }

  /// Reports the first plain weight that is lost where transformers merges or splits weights.
  void check_kept() {
    if (weights_.empty()) return;
    const std::vector<std::string> types(types_.begin(), types_.end());
    const bool unstacks =
        std::ranges::any_of(families_of(types), &Family::unstacked_by_transformers);
    const bool merges = std::ranges::any_of(
        part_types_, [](const std::string& type) { return is_word_of(type, kMergesExperts); });
    const std::vector<std::string> marks = prediction_layer_marks(subject_);
    for (const LogicalTensor& t : subject_.tensors) {
      if (!t.is_plain() || t.shape.size() < 2) continue;
      const std::string module = t.module();
      if (std::ranges::any_of(
              marks, [&](const std::string& mark) { return module.find(mark) != module.npos; }))
        continue;  // not built
      const bool expert = !expert_layer_of(t.name).empty(), weight = t.name.ends_with(".weight");
      if (expert && unstacks && t.shape.size() == 3)
        return add(Verdict::misreads, "kept-weight-lost", t.name,
                   fmt::format("{}: not quantized, and transformers 5 makes layers of its experts, "
                               "which get none of it",
                               t.name));
      if (!weight) continue;
      if (expert && merges)
        return add(Verdict::refuses, "kept-weight-lost", module,
                   fmt::format("{}: not quantized, and transformers 5 drops such experts before it "
                               "stacks them",
                               module));
      if (is_in(kMergesKept, module))
        return add(Verdict::refuses, "kept-weight-lost", module,
                   fmt::format("{}: not quantized, and transformers 5 drops it before it merges or "
                               "cuts it",
                               module));
      if (is_in(kSplitsKept, module))
        return add(Verdict::misreads, "kept-weight-lost", module,
                   fmt::format("{}: not quantized, and transformers 5 makes several modules of it, "
                               "which it builds quantized",
                               module));
    }
  }
  bool is_in(std::span<const LayersOfType> table, const std::string& module) const {
    const std::string last = module.substr(module.rfind('.') + 1);
    return std::ranges::any_of(table, [&](const LayersOfType& row) {
      return is_word_of(last, row.layers) && part_types_.contains(std::string(row.model_type));
    });
  }

  /// Returns substrings that keys of a tower's configuration and names of its modules contain.
  /// Examples are "vision_config", "vit_config", "audio_config", "encoder" and "visual",
  /// "audio_tower". Empty for other keys.
  static std::string_view tower_of(std::string_view key) {
    for (const std::string_view stems : {"vis vit image", "audio speech", "encoder"})
      if (has_one(key, stems)) return stems;
    return {};
  }
  static bool has_one(std::string_view name, std::string_view stems) {
    for (;;) {
      const std::size_t space = stems.find(' ');
      if (name.find(stems.substr(0, space)) != name.npos) return true;
      if (space == stems.npos) return false;
      stems.remove_prefix(space + 1);
    }
  }
  bool is_part(const std::string& type) const {
    return part_types_.contains(type) || std::ranges::any_of(tower_types_, [&](const auto& tower) {
             return tower.second.contains(type);
           });
  }
  /// Reports whether the module is in a part of that type, judged by names.
  bool is_part_of(const std::string& type, std::string_view module) const {
    return part_types_.contains(type) || std::ranges::any_of(tower_types_, [&](const auto& tower) {
             return tower.second.contains(type) && has_one(module, tower.first);
           });
  }

  static bool is_word_of(std::string_view word, std::string_view list) {
    for (std::size_t at = list.find(word); at != list.npos; at = list.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
    }
    return false;
  }

  /// Checks the vocabulary. Embeddings are not linear layers, and tying replaces a weight that does
  /// not exist.
  void check_vocabulary() {
    if (!subject_.config.is_object()) return;
    const auto& config = language_model_config(subject_.config);
    const auto size = config.find("vocab_size");
    if (size == config.end() || !size->is_number_integer()) return;
    const auto tie = subject_.config.find("tie_word_embeddings");
    const bool tied = tie != subject_.config.end() && tie->is_boolean() && tie->get<bool>();
    for (const LogicalTensor* t : weights_) {
      const std::string module = t->module();
      if (t->outputs() != size->get<std::int64_t>() || has_number(module)) continue;
      const std::string last = module.substr(module.rfind('.') + 1);
      const bool embedding =
          last.find("embed") != last.npos || last == "shared" || last == "wte" || last == "w";
      if (embedding)
        add(Verdict::misreads, "vocabulary-quantized", module,
            fmt::format("{}: quantized, and an embedding in transformers", module));
      else if (tied)
        add(Verdict::refuses, "vocabulary-quantized", module,
            fmt::format("{}: quantized, and tied to the embeddings by {}", module,
                        subject_.config_file));
    }
  }

  /// Reports whether a part of the name is a number, as in "layers.3.mlp". Such a module is one of
  /// many.
  static bool has_number(const std::string& module) {
    for (std::size_t at = 0; at < module.size(); ++at)
      if ((at == 0 || module[at - 1] == '.') &&
          std::isdigit(static_cast<unsigned char>(module[at])))
        return true;
    return false;
  }

  void add(Verdict verdict, std::string_view code, std::string tensor, std::string text) {
    findings_.add_for(kTransformers, verdict, code, std::move(tensor), std::move(text));
  }

  const Subject& subject_;
  Findings& findings_;
  std::vector<const LogicalTensor*> weights_;
  std::set<std::string> types_;  ///< types of the model and its language model
  std::set<std::string> part_types_;
  /// The types of models in each tower. The keys are results of tower_of().
  std::map<std::string_view, std::set<std::string>> tower_types_;
};

}  // namespace

void check_transformers(const Subject& subject, Findings& findings) {
  TransformersCheck(subject, findings).run();
  check_transformers_lists(subject, findings);
}

}  // namespace nvfp4::checkpoint
