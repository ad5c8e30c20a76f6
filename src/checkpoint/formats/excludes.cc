#include "checkpoint/formats/excludes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/family.h"
#include "checkpoint/families/select.h"
#include "checkpoint/families/transformers_names.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/pattern.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Strings = std::vector<std::string>;

/// Words that loaders put before names. No entry starts with one of them.
constexpr std::string_view kPrefixes[] = {"model", "language_model", "text_model", "thinker",
                                          "transformer"};
/// Words that stand for all layers of a model. No entry ends with one of them.
constexpr std::string_view kLists[] = {"layers", "layer", "blocks", "block", "h"};
constexpr std::string_view kHead = "lm_head";
/// Characters of globs, and of the expressions that SGLang makes of globs.
constexpr std::string_view kOfPatterns = "*?[]\\+(){}|^$";

/// Layers that vLLM and SGLang fuse if the last of them exists, and names of the fused layer.
struct Fused {
  std::string_view parts, names;
};
constexpr Fused kFused[] = {
    {"q_proj v_proj k_proj", "qkv_proj"},
    {"v_proj k_proj", "kv_proj"},
    {"q_proj k_proj v_proj b_proj", "qkvb_proj"},
    {"q_proj k_proj v_proj g_proj", "in_proj_qkvg fused_qkvg_proj"},
    {"q_proj k_proj v_proj b_proj f_a_proj", "in_proj_qkvgfab"},
    {"query key value", "qkv_proj"},
    {"gate_proj up_proj", "gate_up_proj"},
    {"c_fc_0 c_fc_1", "gate_up_proj"},
    {"w1 w3", "w13 gate_up_proj"},
    {"q_a_proj kv_a_proj_with_mqa", "fused_qkv_a_proj fused_qkv_a_proj_with_mqa"},
    {"q_a_proj kv_a_proj_with_mqa g_proj", "fused_qkv_a_g_proj fused_qkv_a_g_proj_with_mqa"},
    {"fc1 fc3", "fc13"},
    {"wq_a wkv", "fused_wqa_wkv wqkv_a"},
    {"in_proj_qkv in_proj_z", "in_proj_qkvz"},
    {"in_proj_a in_proj_b", "in_proj_ba"},
};

template <class Words>
bool is_one_of(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

/// Returns the name up to and with its last dot, and the rest.
std::pair<std::string_view, std::string_view> split_last(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const std::size_t at = dot == name.npos ? 0 : dot + 1;
  return {name.substr(0, at), name.substr(at)};
}

/// Reports whether the part of a name tells which part of the model it is.
bool is_own(std::string_view part) {
  return !is_number(part) && !is_one_of(kPrefixes, part) && !is_one_of(kLists, part);
}

bool is_lm_head(std::string_view module) { return split_last(module).second == kHead; }

/// Entries that exclude a module or a subtree. Pieces are looked for in names between line ends.
struct Form {
  Strings entries;
  Strings covers;  ///< every loader matches names with one of these pieces
  Strings hits;    ///< no loader matches names without one of these pieces
};

/// The entries that a format has.
struct Syntax {
  /// Returns entries for an end of names, the preferred ones first.
  std::vector<Form> (*ends)(const std::string& end, bool is_subtree, bool has_prefix);
  /// Returns the entry for a name from its start.
  Form (*whole)(const std::string& name, bool is_subtree);
};

/// vLLM reads "a*" as "a" and "a.*" if it replaces names. SGLang also compares each part of a
/// name, and a projection of latent attention at an entry's end with parts of names.
std::vector<Form> globs_of(const std::string& end, bool is_subtree, bool has_prefix) {
  const std::string last = end + "\n", below = end + ".";
  const bool is_part = end.find('.') == end.npos;
  std::vector<Form> forms;
  const auto add = [&](Strings entries, Strings covers, Strings hits) {
    for (const char* latent : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})
      if (entries[0].ends_with(std::string(".") + latent)) hits.emplace_back(latent);
    forms.push_back({std::move(entries), std::move(covers), std::move(hits)});
  };
  if (!is_subtree) {
    add({"*" + end}, {last}, is_part ? Strings{last, below} : Strings{last});
    if (has_prefix) add({"*." + end}, {"." + last}, {"." + last});
  }
  if (!is_number(split_last(end).second)) add({"*" + end + "*"}, {last, below}, {end});
  if (!is_subtree) return forms;
  add({"*" + below + "*"}, {below}, {below});
  if (has_prefix)
    add({"*." + below + "*", below + "*"}, {"." + below, "\n" + below},
        {"." + below, "\n" + below});
  return forms;
}

Form glob_of(const std::string& name, bool is_subtree) {
  if (!is_subtree) return {{name}, {"\n" + name + "\n"}, {name}};
  const std::string below = name + ".";
  return {{below + "*"}, {"\n" + below}, {"\n" + below, "." + below}};
}

constexpr Syntax kGlobs = {globs_of, glob_of};

std::vector<Form> expressions_of(const std::string& end, bool is_subtree, bool /*has_prefix*/) {
  std::string escaped;
  for (const char c : end) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || static_cast<unsigned char>(c) >= 0x80;  // a byte of UTF-8
    if (!plain) escaped += '\\';
    escaped += c;
  }
  const char* const rest = is_subtree ? "." : "\n";
  const Strings pieces = {"\n" + end + rest, "." + end + rest};
  return {{{"re:(.*\\.)?" + escaped + (is_subtree ? "\\..*" : "$")}, pieces, pieces}};
}

Form expression_of(const std::string& name, bool is_subtree) {
  if (is_subtree) return expressions_of(name, true, false)[0];
  const std::string end = name + "\n";
  return {{name}, {"\n" + end}, {"\n" + end, "." + end}};
}

constexpr Syntax kExpressions = {expressions_of, expression_of};

/// Finds pieces in texts.
class PieceSearch {
 public:
  void add(const Strings& pieces) {
    for (const std::string& piece : pieces) {
      initials_.set(static_cast<unsigned char>(piece[0]));
      ids_.emplace(piece, ids_.size());
    }
  }
  std::size_t size() const { return ids_.size(); }
  std::size_t id_of(const std::string& piece) const { return ids_.find(piece)->second; }
  /// Calls `take` with the ID of each piece in the text.
  template <class Take>
  void find(const std::string& text, Take take) const {
    for (std::size_t at = 0; at < text.size(); ++at)
      if (initials_[static_cast<unsigned char>(text[at])])
        for_each_beginning(ids_, std::string_view(text).substr(at),
                           [&](const auto& piece) { take(piece.second); });
  }

 private:
  std::map<std::string, std::size_t, std::less<>> ids_;
  std::bitset<256> initials_;
};

std::string text_of(std::string_view name) { return fmt::format("\n{}\n", name); }

/// The modules of a checkpoint as loaders call them. Expert 0 stands for all experts of a layer.
class Modules {
 public:
  /// `second`: the names in transformers, or null to leave them out.
  Modules(const ConfigFacts& facts, const TransformersNames* second) : second_(second) {
    for (const std::string& module : facts.quantized) add_quantized(module);
    for (const Fp8Module& module : facts.fp8) add_quantized(module.name);
    has_plain_head_ = std::ranges::none_of(quantized_, [](const std::string& name) {
      return name.find(kHead) != name.npos;  // vLLM looks for substrings
    });
    if (!has_plain_head_ && std::ranges::none_of(quantized_, is_lm_head))
      add_optional(std::string(kHead));
    for (const KeptModule& module : facts.kept)
      if (module.linear && !(has_plain_head_ && module.name == kHead)) add_kept(module.name);
    Strings fused;
    for (const std::string& name : quantized_) add_fused(name, fused);
    quantized_.insert(fused.begin(), fused.end());
  }

  struct Kept {
    std::string name;
    bool is_required = true;  ///< has an entry even if that also excludes a quantized module
  };

  const std::set<std::string>& quantized() const { return quantized_; }
  const std::vector<Kept>& kept() const { return kept_; }
  /// Reports whether "lm_head" stands for all heads, and for nothing that is quantized.
  bool has_plain_head() const { return has_plain_head_; }
  /// Returns the excluded experts of layers with some quantized experts.
  const Strings& single_experts() const { return single_experts_; }

  void add_optional(std::string name) {
    if (seen_.insert(name).second) kept_.push_back({std::move(name), false});
  }
  /// Adds the layers that engines fuse from excluded ones, and other names of excluded modules.
  void add_names_of_engines() {
    Strings names;
    for (const Kept& kept : kept_) add_fused(kept.name, names);
    for (const Kept& kept : kept_) {
      const auto [parent, last] = split_last(kept.name);
      // "moe.up_proj" and "block_sparse_moe.input_linear" are stacks of experts.
      const bool is_stack =
          is_one_of(split_name("input_linear output_linear gate_proj up_proj down_proj", ' '),
                    last) &&
          (parent.ends_with(".moe.") || parent.ends_with(".block_sparse_moe."));
      if (is_stack) names.push_back(std::string(parent) + "experts");
      // The head of multi-token prediction in vLLM.
      if (kept.name.ends_with(".shared_head.head"))
        names.push_back(fmt::format("{}head", parent.substr(0, parent.rfind("shared_head."))));
    }
    for (const std::string& layer : expert_layers_) names.push_back(layer);
    for (std::string& name : names) add_optional(std::move(name));
  }
  /// Reports whether a module or one inside of it is quantized.
  bool holds_quantized(const std::string& part) const {
    const auto it = quantized_.lower_bound(part);
    if (it != quantized_.end() && *it == part) return true;
    const auto inside = quantized_.lower_bound(part + ".");
    return inside != quantized_.end() && inside->starts_with(part + ".");
  }

 private:
  void add_quantized(const std::string& module) {
    const std::string layer = expert_layer_of(module);
    if (!layer.empty()) {
      partly_.insert(layer);
      quantized_.insert(layer);  // engines build one module of it
    }
    quantized_.insert(layer.empty() ? module : of_first_expert(layer, module));
    if (second_ != nullptr && layer.empty()) quantized_.insert(second_->name_of(module));
  }
  static std::string of_first_expert(const std::string& layer, const std::string& module) {
    return fmt::format("{}.0.{}", layer, split_last(module).second);
  }
  void add_kept(const std::string& module) {
    const std::string layer = expert_layer_of(module);
    if (!layer.empty() && partly_.contains(layer)) {
      single_experts_.push_back(module);
      return;
    }
    if (!layer.empty()) expert_layers_.insert(layer);
    std::string name = layer.empty() ? module : of_first_expert(layer, module);
    if (seen_.insert(name).second) kept_.push_back({std::move(name)});
    if (second_ != nullptr && layer.empty()) add_optional(second_->name_of(module));
  }
  /// Adds the fused layers of a module, unless another of their parts is quantized.
  void add_fused(const std::string& name, Strings& names) const {
    const auto [parent, last] = split_last(name);
    const auto is_quantized = [&](const std::string& part) { return quantized_.contains(part); };
    for (const Fused& fused : kFused) {
      if (fused.parts.find(last) == fused.parts.npos) continue;
      Strings parts;
      for (const std::string_view part : split_name(fused.parts, ' '))
        parts.push_back(fmt::format("{}{}", parent, part));
      if (!is_one_of(parts, name)) continue;
      if (!is_quantized(parts.back()) && !seen_.contains(parts.back())) continue;
      if (std::ranges::any_of(parts, is_quantized) && !is_quantized(name)) continue;
      for (const std::string_view each : split_name(fused.names, ' '))
        names.push_back(fmt::format("{}{}", parent, each));
    }
  }

  const TransformersNames* second_;
  std::set<std::string> quantized_, partly_, expert_layers_, seen_;
  std::vector<Kept> kept_;
  Strings single_experts_;
  bool has_plain_head_ = false;
};

/// Chooses the entries of a list.
class Chooser {
 public:
  Chooser(const Modules& modules, const Syntax& syntax) : modules_(modules), syntax_(syntax) {}

  ExcludeList choose() {
    std::vector<Place> places;
    for (const Modules::Kept& kept : modules_.kept()) places.push_back(root_of(kept));
    while (!places.empty()) places = choose_for(places);
    drop_redundant();
    ExcludeList list;
    for (const Chosen& chosen : chosen_) {
      if (!chosen.is_needed) continue;
      for (const std::string& entry : chosen.form.entries) list.entries.push_back(entry);
      if (!chosen.hit.empty())
        list.conflicts.push_back(
            fmt::format("{} is excluded; loaders that match substrings also exclude {}",
                        chosen.form.entries[0], chosen.hit));
    }
    return list;
  }

 private:
  /// An excluded module, or the subtree of the first parts of its name.
  struct Place {
    const Modules::Kept* kept = nullptr;
    std::vector<std::string_view> parts;
    std::size_t count = 0;  ///< number of parts

    bool is_subtree() const { return count < parts.size(); }
    std::string name() const { return kept->name.substr(0, end_of(count)); }
    std::string end_from(std::size_t part) const { return name().substr(begin_of(part)); }

   private:
    std::size_t begin_of(std::size_t part) const {
      return static_cast<std::size_t>(parts[part].data() - kept->name.data());
    }
    std::size_t end_of(std::size_t n) const { return begin_of(n - 1) + parts[n - 1].size(); }
  };
  struct Chosen {
    Form form;
    std::string hit;  ///< a quantized module that the entries exclude, too; "": none
    bool is_needed = true;
  };

  /// Returns the largest subtree that has the module and nothing quantized, or the module.
  Place root_of(const Modules::Kept& kept) const {
    Place place = {&kept, split_name(kept.name), 1};
    for (; place.is_subtree(); ++place.count) {
      const std::string_view last = place.parts[place.count - 1];
      const bool is_layer = place.count > 1 && is_number(last);
      if ((is_own(last) || is_layer) && !modules_.holds_quantized(place.name())) break;
    }
    return place;
  }

  std::vector<Form> forms_of(const Place& place) const {
    std::vector<Form> forms;
    // "layers.0" could be in any part of a model.
    bool is_enough = std::ranges::none_of(std::span(place.parts).first(place.count), is_own);
    for (std::size_t i = place.count; i-- > 0;) {
      is_enough = is_enough || is_own(place.parts[i]);
      if (!is_enough || is_number(place.parts[i]) || is_one_of(kPrefixes, place.parts[i])) continue;
      for (Form& form : syntax_.ends(place.end_from(i), place.is_subtree(), i > 0))
        forms.push_back(std::move(form));
    }
    forms.push_back(syntax_.whole(place.name(), place.is_subtree()));
    return forms;
  }

  /// Chooses entries. Returns smaller places where all entries hit quantized modules.
  std::vector<Place> choose_for(const std::vector<Place>& places) {
    std::map<std::pair<std::string, bool>, std::vector<Form>> choices;
    PieceSearch search;
    for (const Place& place : places) {
      const auto [it, is_new] = choices.try_emplace({place.name(), place.is_subtree()});
      if (!is_new) continue;
      it->second = forms_of(place);
      for (const Form& form : it->second) search.add(form.hits);
    }
    const std::vector<std::string> hits = hits_of(search);
    std::vector<Place> smaller;
    for (const Place& place : places) {
      const std::vector<Form>& forms = choices.at({place.name(), place.is_subtree()});
      const auto hit_of = [&](const Form& form) {
        for (const std::string& piece : form.hits)
          if (const std::string& hit = hits[search.id_of(piece)]; !hit.empty()) return hit;
        return std::string();
      };
      const auto found =
          std::ranges::find_if(forms, [&](const Form& form) { return hit_of(form).empty(); });
      if (found != forms.end()) {
        if (taken_.insert(found->entries[0]).second) chosen_.push_back({*found, {}});
      } else if (place.is_subtree()) {
        smaller.push_back(place);
        ++smaller.back().count;
      } else if (place.kept->is_required) {
        chosen_.push_back({forms.back(), hit_of(forms.back())});
      }
    }
    return smaller;
  }

  /// Returns a quantized module for each piece that occurs in one.
  std::vector<std::string> hits_of(const PieceSearch& search) const {
    std::vector<std::string> hits(search.size());
    const auto look = [&](const std::string& name) {
      search.find(text_of(name), [&](std::size_t id) {
        if (hits[id].empty()) hits[id] = name;
      });
    };
    for (const std::string& name : modules_.quantized()) look(name);
    look(fmt::format("{}.", fmt::join(kPrefixes, ".")));
    return hits;
  }

  /// Drops entries whose modules other entries match too, those with the fewest modules first.
  void drop_redundant() {
    PieceSearch search;
    for (const Chosen& chosen : chosen_) search.add(chosen.form.covers);
    std::vector<std::vector<std::size_t>> chosen_of(search.size());
    for (std::size_t i = 0; i < chosen_.size(); ++i)
      for (const std::string& piece : chosen_[i].form.covers)
        chosen_of[search.id_of(piece)].push_back(i);
    std::vector<std::set<std::size_t>> names(chosen_.size());
    std::vector<std::size_t> times(modules_.kept().size());
    for (std::size_t k = 0; k < times.size(); ++k)
      search.find(text_of(modules_.kept()[k].name), [&](std::size_t id) {
        for (const std::size_t i : chosen_of[id]) times[k] += names[i].insert(k).second;
      });
    std::vector<std::size_t> order(chosen_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return names[i].size(); });
    for (const std::size_t i : order) {
      if (!std::ranges::all_of(names[i], [&](std::size_t k) { return times[k] > 1; })) continue;
      chosen_[i].is_needed = false;
      for (const std::size_t k : names[i]) --times[k];
    }
  }

  const Modules& modules_;
  const Syntax& syntax_;
  std::set<std::string> taken_;
  std::vector<Chosen> chosen_;
};

/// Returns the list with the head in front and the experts of partly quantized layers at the end.
ExcludeList list_of(const Modules& modules, const Syntax& syntax) {
  ExcludeList list = Chooser(modules, syntax).choose();
  if (modules.has_plain_head()) list.entries.emplace(list.entries.begin(), kHead);
  list.entries.insert(list.entries.end(), modules.single_experts().begin(),
                      modules.single_experts().end());
  return list;
}

/// Adds names of the family that checkpoints do not have.
void add_second_names(const ConfigFacts& facts, Modules& modules) {
  if (facts.model_types.empty()) return;
  for (const Family* family : families_of(facts.model_types.front())) {
    if (family->second_names.empty()) continue;
    for (const std::string_view name : split_name(family->second_names, ' ')) {
      const bool is_subtree = name.ends_with(".*");
      modules.add_optional(std::string(name.substr(0, name.size() - is_subtree)) +
                           (is_subtree ? "0" : ""));
    }
  }
}

}  // namespace

bool is_bare_projection(const LogicalTensor& t) {
  return t.is_plain() && t.shape.size() == 2 && t.name.ends_with("_proj") &&
         is_float(t.data.info->dtype);
}

std::optional<KeptModule> kept_module(const LogicalTensor& t, bool linear) {
  const bool bare = is_bare_projection(t);
  if (!bare && !t.name.ends_with(".weight") && (!linear || expert_layer_of(t.module()).empty()))
    return std::nullopt;
  return KeptModule{t.module(), linear || bare};
}

void require_plain_names(const ConfigFacts& facts, const std::string& model) {
  const auto check = [&](const std::string& name) {
    const bool is_plain = !name.starts_with("re:") && std::ranges::none_of(name, [](char c) {
      return static_cast<unsigned char>(c) < ' ' || kOfPatterns.find(c) != kOfPatterns.npos;
    });
    require<UnsupportedError>(is_plain,
                              "{}: module '{}': quantization_config lists modules, where loaders "
                              "would read the name as a pattern, so it must not start with 're:' "
                              "or contain control characters or any of {}; hint: rename its "
                              "tensors, or choose the format comfyui",
                              model, printable(name), kOfPatterns);
  };
  for (const KeptModule& module : facts.kept) check(module.name);
  if (!facts.is_mixed() && facts.native == nullptr) return;  // "Linear" stands for the others
  for (const std::string& module : facts.quantized) check(module);
  for (const Fp8Module& module : facts.fp8) check(module.name);
}

ExcludeList exclude_globs(const ConfigFacts& facts) {
  Modules modules(facts, nullptr);
  modules.add_names_of_engines();
  add_second_names(facts, modules);
  for (const KeptModule& module : facts.kept)
    if (!module.linear) modules.add_optional(module.name);
  return list_of(modules, kGlobs);
}

std::vector<std::string> exclude_expressions(const ConfigFacts& facts) {
  const TransformersNames names(facts.model_types.empty() ? "" : facts.model_types.front());
  Modules modules(facts, &names);
  add_second_names(facts, modules);
  // The language model of several parts has a prefix, for which the name alone does not stand.
  if (!facts.model_types.empty() && facts.model_types.front() != facts.model_types.back())
    modules.add_optional(std::string(kHead));
  return list_of(modules, kExpressions).entries;
}

}  // namespace nvfp4::checkpoint
