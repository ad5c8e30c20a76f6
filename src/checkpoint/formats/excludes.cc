#include "checkpoint/formats/excludes.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <set>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/select.h"
#include "checkpoint/match/beginnings.h"
#include "checkpoint/match/glob.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the names that loaders compare, with expert 0 for all experts of a layer. The names of
/// fused layers are added, as loaders use them, too.
std::set<std::string> representative_names(std::span<const std::string> quantized,
                                           std::span<const Fp8Module> fp8 = {}) {
  std::set<std::string> names;
  std::vector<std::string> all(quantized.begin(), quantized.end());
  for (const Fp8Module& module : fp8) all.push_back(module.name);
  for (const std::string& module : all) {
    const std::string experts = expert_layer_of(module);
    const std::size_t dot = module.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : module.substr(0, dot + 1);
    const std::string last = module.substr(dot == std::string::npos ? 0 : dot + 1);
    if (!experts.empty()) {
      names.insert(fmt::format("{}.0.{}", experts, last));
      continue;
    }
    names.insert(module);
    if (last == "gate_proj") names.insert(parent + "gate_up_proj");
    if (last == "q_proj") names.insert(parent + "qkv_proj");
  }
  return names;
}

using Names = std::set<std::string>;

/// Finds, for each entry, the first name that matches it as a glob or contains it as a substring.
class FirstFound {
 public:
  explicit FirstFound(const Names& names) : names_(names) {}

  void add(std::string entry) { first_.try_emplace(std::move(entry), names_.end()); }
  void search() {
    std::map<std::string_view, Names::const_iterator*> entries;
    std::bitset<256> initials;
    for (auto& [entry, first] : first_) {
      entries.emplace(entry, &first);
      if (entry.empty())
        initials.set();
      else
        initials.set(static_cast<unsigned char>(entry[0]));
    }
    std::map<std::string_view, Names::const_iterator> by_last;
    for (auto name = names_.begin(); name != names_.end(); ++name) {
      for (std::size_t at = 0; at < name->size(); ++at)
        if (initials[static_cast<unsigned char>((*name)[at])])
          for_each_beginning(entries, std::string_view(*name).substr(at), [&](const auto& entry) {
            if (*entry.second == names_.end()) *entry.second = name;
          });
      if (const std::size_t dot = name->rfind('.'); dot != name->npos)
        by_last.try_emplace(std::string_view(*name).substr(dot), name);
    }
    for (auto& [entry, first] : first_) find_glob(entry, by_last, first);
  }
  /// Returns the first name for the entry, or null if there is none.
  const std::string* of(const std::string& entry) const {
    const auto first = first_.at(entry);
    return first == names_.end() ? nullptr : &*first;
  }

 private:
  void find_glob(const std::string& entry,
                 const std::map<std::string_view, Names::const_iterator>& by_last,
                 Names::const_iterator& first) {
    if (entry.find_first_of("*?") == entry.npos) return;
    auto found = names_.end();
    const bool is_last = entry.starts_with("*.") && entry.find_first_of("*?.", 2) == entry.npos;
    if (is_last) {
      if (const auto it = by_last.find(std::string_view(entry).substr(1)); it != by_last.end())
        found = it->second;
    } else {
      const Glob glob(entry);
      found = std::ranges::find_if(
          names_, [&](const std::string& name) { return glob.matches(name, budget_); });
    }
    if (found != names_.end() && (first == names_.end() || *found < *first)) first = found;
  }

  const Names& names_;
  std::map<std::string, Names::const_iterator> first_;
  MatchBudget budget_;
};

/// Returns the loaders' name for the experts of an excluded stack with another name, such as
/// "moe.up_proj" or "block_sparse_moe.input_linear". Returns "" for other modules.
std::string experts_beside(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string_view parent = std::string_view(module).substr(0, dot), last(&module[dot + 1]);
  const bool stack = last == "input_linear" || last == "output_linear" || last == "gate_proj" ||
                     last == "up_proj" || last == "down_proj";
  const bool layer = parent.ends_with(".moe") || parent.ends_with(".block_sparse_moe");
  return stack && layer ? fmt::format("{}.experts", parent) : std::string();
}

bool is_lm_head(const std::string& module) {
  return module == "lm_head" || module.ends_with(".lm_head");
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

std::vector<std::string> linear_excludes(const ConfigFacts& facts,
                                         std::string (*experts_entry)(const std::string&)) {
  std::set<std::string> partly;  // layers with some quantized experts
  for (const std::string& module : facts.quantized)
    if (const std::string experts = expert_layer_of(module); !experts.empty())
      partly.insert(experts);
  std::vector<std::string> entries;
  std::set<std::string> seen;
  const auto add = [&](std::string entry) {
    if (seen.insert(entry).second) entries.push_back(std::move(entry));
  };
  // Loaders compare it as a substring, so it would also exclude "language_model.lm_head".
  if (std::none_of(facts.quantized.begin(), facts.quantized.end(), is_lm_head) &&
      std::ranges::none_of(facts.fp8, is_lm_head, &Fp8Module::name))
    add("lm_head");
  for (const KeptModule& module : facts.kept) {
    if (!module.linear) continue;
    const std::string experts = expert_layer_of(module.name);
    add(experts.empty() || partly.count(experts) != 0 ? module.name : experts_entry(experts));
    std::string beside = experts_beside(module.name);
    if (!beside.empty() && partly.count(beside) == 0) add(std::move(beside));
  }
  return entries;
}

std::vector<std::string> other_excludes(const ConfigFacts& facts) {
  const std::set<std::string> quantized = representative_names(facts.quantized, facts.fp8);
  std::map<std::string, std::vector<std::string>> by_last;
  std::vector<std::string> order;
  for (const KeptModule& module : facts.kept) {
    if (module.linear) continue;
    const std::string last = module.name.substr(module.name.rfind('.') + 1);
    auto& names = by_last[last];
    if (names.empty()) order.push_back(last);
    names.push_back(module.name);
  }
  FirstFound found(quantized);
  for (const auto& [last, names] : by_last) {
    found.add("*." + last);
    for (const std::string& name : names) found.add(name);
  }
  found.search();
  const auto harmless = [&](const std::string& entry) { return found.of(entry) == nullptr; };
  std::vector<std::string> entries;
  for (const std::string& last : order) {
    const auto& names = by_last[last];
    if (const std::string glob = "*." + last; names.size() > 1 && harmless(glob)) {
      entries.push_back(glob);
      continue;
    }
    std::copy_if(names.begin(), names.end(), std::back_inserter(entries), harmless);
  }
  return entries;
}

std::vector<std::string> mtp_head_excludes(const ConfigFacts& facts) {
  constexpr std::string_view kStored = ".shared_head.head";
  const std::set<std::string> quantized = representative_names(facts.quantized, facts.fp8);
  std::vector<std::string> entries;
  FirstFound found(quantized);
  for (const KeptModule& module : facts.kept) {
    if (!module.name.ends_with(kStored)) continue;
    entries.push_back(module.name.substr(0, module.name.size() - kStored.size()) + ".head");
    found.add(entries.back());
  }
  found.search();
  std::erase_if(entries, [&](const std::string& entry) { return found.of(entry) != nullptr; });
  return entries;
}

std::vector<std::string> exclude_conflicts(const std::vector<std::string>& excludes,
                                           std::span<const std::string> quantized) {
  const std::set<std::string> names = representative_names(quantized);
  FirstFound found(names);
  for (const std::string& entry : excludes) found.add(entry);
  found.search();
  std::vector<std::string> lines;
  for (const std::string& entry : excludes)
    if (const std::string* name = found.of(entry))
      lines.push_back(fmt::format("{} is excluded; loaders that match substrings also exclude {}",
                                  entry, *name));
  return lines;
}

}  // namespace nvfp4::checkpoint
