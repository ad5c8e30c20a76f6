// Checks that the lists of a compressed-tensors configuration have the names of transformers 5.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/select.h"
#include "checkpoint/families/transformers_names.h"
#include "checkpoint/formats/excludes.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/renamed.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/verify/exclusions.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

bool is_expression(std::string_view entry) { return entry.starts_with("re:"); }

/// A list as compressed-tensors reads it: whole names, expressions that match the start of a name,
/// and the class of a module. Source: utils/match.py.
class ExactList {
 public:
  /// Refers to a list and its entries, which must outlive the object.
  ExactList(const EntryList& list, const std::vector<std::string>& entries)
      : list_(list), names_(entries.begin(), entries.end()) {}

  bool matches(const std::string& module) const {
    return names_.contains("Linear") || names_.contains(module) || list_.has_expression_for(module);
  }

 private:
  const EntryList& list_;
  std::unordered_set<std::string_view> names_;
};

class ListsCheck {
 public:
  ListsCheck(const Subject& subject, const Declared& declared, Findings& findings)
      : subject_(subject),
        findings_(findings),
        declared_(declared),
        file_(std::filesystem::path(declared.file).filename().string()),
        lenient_(declared),
        ignore_(lenient_.list(), declared.ignore),
        targets_(all_targets()),
        target_list_(targets_, declared.file, declared.budget),
        target_(target_list_, targets_),
        names_(subject.model_type) {}

  void run() {
    for (const LogicalTensor& t : subject_.tensors) {
      const std::string module = t.module();
      if (!expert_layer_of(module).empty()) continue;  // part of a stack, not a linear layer
      if (t.is_plain())
        look_at_kept(t, module);
      else
        look_at_quantized(module);
    }
    tell_kept();
    tell_quantized();
    check_tied_head();
  }

 private:
  struct Pair {
    std::string module, name;  ///< name in the checkpoint, name in transformers
  };

  std::vector<std::string> all_targets() const {
    std::vector<std::string> targets;
    for (const DeclaredGroup& group : declared_.groups)
      targets.insert(targets.end(), group.targets.begin(), group.targets.end());
    return targets;
  }

  /// Checks an excluded tensor. "kept-not-excluded" covers modules that are excluded under no name.
  void look_at_kept(const LogicalTensor& t, const std::string& module) {
    if (is_bare_projection(t)) return look_at_bare(module);
    if (!t.name.ends_with(".weight") || t.shape.size() != 2 || !is_float(t.data.info->dtype))
      return;
    kept_.push_back({module, classify(*t.data.info, subject_.model_type).linear});
    const auto [match, entry] = lenient_.find(module);
    if (match == Exclusions::Match::none || !kept_.back().linear || names_.unlike_linear(module))
      return;
    std::string name = names_.name_of(module);
    const bool is_sure = name == module && (entry == module || is_expression(entry));
    if (is_sure || ignore_.matches(name) || !target_.matches(name)) return;
    lost_.push_back({module, std::move(name)});
  }

  /// Checks a bare projection. Most are not layers, so only those that transformers makes layers of
  /// count.
  void look_at_bare(const std::string& module) {
    std::string name = names_.name_of(module);
    if (name == module || ignore_.matches(name) || !target_.matches(name)) return;
    kept_.push_back({module, true});
    lost_.push_back({module, std::move(name)});
  }

  void look_at_quantized(const std::string& module) {
    quantized_.push_back(module);
    std::string name = names_.name_of(module);
    if (name == module) return;  // "excluded-quantized", "not-in-quantized-layers" cover it
    if (ignore_.matches(name) || !target_.matches(name)) left_.push_back({module, std::move(name)});
  }

  static std::string called(const Pair& pair) {
    return pair.module == pair.name ? std::string("which must be whole there")
                                    : fmt::format("which transformers 5 calls {}", pair.name);
  }

  void tell_kept() {
    if (lost_.empty()) return;
    const Pair& first = lost_.front();
    const auto more = lost_.size() - 1;
    add(Verdict::misreads, first.module,
        fmt::format("{}{} not quantized, and no entry of {}'s 'ignore' is the name of {}, {}; "
                    "{} would be",
                    first.module, more == 0 ? " is" : fmt::format(" and {} more are", more), file_,
                    first.module, called(first), cure()));
  }

  /// Returns the entries that would exclude all lost modules.
  std::string cure() const {
    ConfigFacts facts;
    facts.kept = kept_;
    facts.quantized = quantized_;
    const std::vector<std::string> known = renamed_excludes(facts);
    const EntryList list(known, declared_.file, declared_.budget);
    std::set<std::size_t> used;
    std::vector<std::string> names;
    for (const Pair& pair : lost_) {
      if (const auto entry = list.first(pair.name))
        used.insert(*entry);
      else
        names.push_back(pair.name);
    }
    std::vector<std::string> entries;
    entries.reserve(used.size() + names.size());
    for (const std::size_t i : used) entries.push_back(known[i]);
    std::ranges::move(names, std::back_inserter(entries));
    constexpr std::size_t kMost = 4;
    std::string text;
    for (std::size_t i = 0; i < std::min(entries.size(), kMost); ++i)
      text += fmt::format("{}'{}'", i == 0 ? "" : ", ", entries[i]);
    return entries.size() > kMost ? text + fmt::format(" and {} more", entries.size() - kMost)
                                  : text;
  }

  void tell_quantized() {
    if (left_.empty()) return;
    const Pair& first = left_.front();
    const auto more = left_.size() - 1;
    add(Verdict::misreads, first.module,
        fmt::format("{}{} quantized, and {} its name in transformers 5, {}", first.module,
                    more == 0 ? " is" : fmt::format(" and {} more are", more),
                    ignore_.matches(first.name) ? fmt::format("{}'s 'ignore' has", file_)
                                                : fmt::format("no target in {} is", file_),
                    first.name));
  }

  /// Checks a tied head. transformers builds it as a linear layer although the checkpoint has only
  /// the embedding.
  void check_tied_head() {
    if (quantized_.empty()) return;
    const std::vector<std::string> types = {subject_.model_type};
    const auto own = tied_head(types);
    const std::string head(own.value_or("lm_head"));
    if (!has_tied_head(own.has_value()) || subject_.table.find(head + ".weight")) return;
    if (ignore_.matches(head) || !target_.matches(head)) return;
    add(Verdict::refuses, head,
        fmt::format("{} shares the weight of the embedding, and no entry of {}'s 'ignore' is its "
                    "name; '{}' would be",
                    head, file_, head));
  }

  /// Reports whether the model's class has a tied head. `own`: the head has a special name and is
  /// tied by default.
  bool has_tied_head(bool own) const {
    const auto tie = subject_.config.find("tie_word_embeddings");
    const bool said = tie != subject_.config.end() && tie->is_boolean();
    if (said ? !tie->get<bool>() : !own) return false;
    const auto classes = subject_.config.find("architectures");
    if (classes == subject_.config.end() || !classes->is_array() || classes->empty() ||
        !classes->front().is_string())
      return false;
    const auto name = classes->front().get<std::string>();
    const auto is_of = [&](std::string_view part) { return name.find(part) != name.npos; };
    return is_of("CausalLM") || is_of("LMHead") ||
           (own && (is_of("LM") || is_of("ForPreTraining") || is_of("ForConditionalGeneration")));
  }

  void add(Verdict verdict, std::string tensor, std::string text) {
    findings_.add_for(kTransformers, verdict, "names-differ", std::move(tensor), std::move(text));
  }

  const Subject& subject_;
  Findings& findings_;
  const Declared& declared_;
  std::string file_;
  Exclusions lenient_;
  ExactList ignore_;
  std::vector<std::string> targets_;
  EntryList target_list_;
  ExactList target_;
  TransformersNames names_;
  std::vector<KeptModule> kept_;
  std::vector<std::string> quantized_;
  std::vector<Pair> lost_, left_;  ///< excluded and not in `ignore`; quantized and not a target
};

}  // namespace

void check_transformers_lists(const Subject& subject, Findings& findings) {
  const Declared* declared = subject.declared();
  if (declared == nullptr || !declared->is_compressed_tensors()) return;
  try {
    ListsCheck(subject, *declared, findings).run();
  } catch (const FormatError&) {  // an invalid expression is a finding of check_config()
  }
}

}  // namespace nvfp4::checkpoint
