#include "checkpoint/recipe/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "checkpoint/families/family.h"
#include "checkpoint/families/kept_names.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/io/yaml.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = 1 << 20, kMaxRules = 10'000, kMaxPatterns = 2'000,
                      kMaxImports = 100;

constexpr std::pair<std::string_view, Action> kActions[] = {{"nvfp4", Action::nvfp4},
                                                            {"w4a16", Action::w4a16},
                                                            {"fp8", Action::fp8},
                                                            {"fp8_channel", Action::fp8_channel},
                                                            {"fp8_block", Action::fp8_block},
                                                            {"mxfp8", Action::mxfp8},
                                                            {"keep", Action::keep}};

/// Returns the recipe of this name, or null.
const NamedRecipe* find_named(std::string_view name) {
  const auto found = std::ranges::find(named_recipes(), name, &NamedRecipe::name);
  return found == named_recipes().end() ? nullptr : &*found;
}

std::string file_of(const NamedRecipe& named) { return fmt::format("recipe {}", named.name); }

/// State that a recipe shares with those that it imports.
struct Session {
  fs::path folder;                ///< the files of all imports are in this folder
  std::vector<std::string> open;  ///< files of the recipes that are being read
  SharedBudget budget = std::make_shared<MatchBudget>();
  std::size_t imports = 0, rules = 0, patterns = 0;
};

void read_text(Recipe& recipe, Session& session);

class Reader {
 public:
  Reader(const std::string& file, Session& session) : file_(file), session_(session) {}

  void read(const YamlNode& top, Recipe& recipe) {
    std::vector<RecipeRule> imported;
    std::optional<Scheme> scheme;
    std::string kv_cache;
    take(top, "a recipe",
         {{"about", [&](const YamlNode& node) { recipe.about = word(node); }},
          {"import",
           [&](const YamlNode& node) {
             for (const std::string& name : words(node)) {
               Recipe part = read_import(node.line, name);
               std::ranges::move(part.rules, std::back_inserter(imported));
               if (part.scheme) scheme = part.scheme;
               if (!part.kv_cache.empty()) kv_cache = part.kv_cache;
               if (!recipe.text.ends_with('\n')) recipe.text += '\n';
               recipe.text += fmt::format("---\n# {}\n{}", name, part.text);
             }
           }},
          {"scheme", [&](const YamlNode& node) { recipe.scheme = scheme_of(node); }},
          {"kv_cache",
           [&](const YamlNode& node) {
             const std::string type = word(node);
             check_name(node, type, std::vector{"fp8", "nvfp4"});
             recipe.kv_cache = type == "fp8" ? "FP8" : "NVFP4";
           }},
          {"rules", [&](const YamlNode& node) {
             check(node.kind == YamlNode::Kind::sequence, node.line, "rules: must be a list");
             session_.rules += node.items.size();
             check(session_.rules <= kMaxRules, node.line,
                   fmt::format("{} rules, at most {}", session_.rules, kMaxRules));
             for (const YamlNode& item : node.items) recipe.rules.push_back(rule(item));
           }}});
    check(has(top, "rules") || has(top, "import"), 1,
          "has no rules; \"rules: []\" changes nothing");
    recipe.rules.insert(recipe.rules.begin(), std::make_move_iterator(imported.begin()),
                        std::make_move_iterator(imported.end()));
    if (!recipe.scheme) recipe.scheme = scheme;
    if (recipe.kv_cache.empty()) recipe.kv_cache = kv_cache;
  }

 private:
  struct Member {
    std::string_view key;
    std::function<void(const YamlNode&)> read;
  };

  void check(bool ok, int line, const std::string& what) const {
    require<FormatError>(ok, "{}:{}: {}", file_, line, what);
  }

  static bool has(const YamlNode& map, std::string_view key) {
    return std::ranges::find(map.keys, key, &YamlNode::Key::text) != map.keys.end();
  }

  /// Reads each member of a map with its function.
  void take(const YamlNode& map, std::string_view what, const std::vector<Member>& members) {
    check(map.kind == YamlNode::Kind::map, std::max(map.line, 1),
          fmt::format("{} must be \"key: value\" pairs", what));
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const YamlNode::Key& key = map.keys[i];
      const auto member = std::ranges::find(members, key.text, &Member::key);
      if (member == members.end()) {
        std::vector<std::string_view> known(members.size());
        std::ranges::transform(members, known.begin(), &Member::key);
        check(false, key.line,
              fmt::format("{}: must be one of {}", printable(key.text), fmt::join(known, ", ")));
      }
      member->read(map.items[i]);
    }
  }

  std::string word(const YamlNode& node) const {
    check(node.kind != YamlNode::Kind::alias, node.line, "an alias, which recipes do not have");
    check(node.kind == YamlNode::Kind::scalar && !node.text.empty() && !node.has_tag, node.line,
          "must be a word");
    check(printable(node.text, node.text.size()) == node.text, node.line, "must be printable");
    return node.text;
  }

  /// Returns one word, or the words of a list.
  std::vector<std::string> words(const YamlNode& node) const {
    if (node.kind != YamlNode::Kind::sequence) return {word(node)};
    check(!node.items.empty(), node.line, "an empty list");
    std::vector<std::string> all;
    all.reserve(node.items.size());
    for (const YamlNode& item : node.items) all.push_back(word(item));
    return all;
  }

  /// Throws FormatError with the list of names if `name` is not one of them.
  template <class Names>
  void check_name(const YamlNode& node, const std::string& name, const Names& names) const {
    check(std::ranges::find(names, name) != std::ranges::end(names), node.line,
          fmt::format("{}: must be one of {}", name, fmt::join(names, ", ")));
  }

  Scheme scheme_of(const YamlNode& node) const {
    const std::string name = word(node);
    check_name(node, name, scheme_names());
    return scheme_from_name(name);
  }

  Action action(const YamlNode& node) const {
    const std::string name = word(node);
    std::vector<std::string_view> names;
    for (const auto& [known, value] : kActions) names.push_back(known);
    check_name(node, name, names);
    return std::ranges::find(kActions, std::string_view(name),
                             &std::pair<std::string_view, Action>::first)
        ->second;
  }

  /// Reads a named recipe, or a file in the folder of the recipe that imports the others.
  Recipe read_import(int line, const std::string& name) {
    check(++session_.imports <= kMaxImports, line,
          fmt::format("more than {} imports", kMaxImports));
    const NamedRecipe* named = find_named(name);
    Recipe recipe;
    if (named != nullptr) {
      recipe.name = name;
      recipe.file = file_of(*named);
      recipe.text = named->text;
    } else {
      const fs::path path = import_path(line, name);
      recipe.file = path.string();
      recipe.text = read_model_text(path);
    }
    check(std::ranges::find(session_.open, recipe.file) == session_.open.end(), line,
          fmt::format("import {}: imports itself, directly or through others", name));
    read_text(recipe, session_);
    for (RecipeRule& rule : recipe.rules)
      if (rule.title.empty()) rule.title = recipe.title();
    return recipe;
  }

  fs::path import_path(int line, const std::string& name) const {
    const fs::path relative(name);
    check(
        !relative.has_root_path() && std::ranges::find(relative, "..") == relative.end(), line,
        fmt::format("import {}: must be the name of a recipe, or a path in the folder of this one "
                    "without \"..\"",
                    name));
    std::error_code error;
    const fs::path folder = fs::canonical(session_.folder, error);
    const fs::path path = fs::canonical(session_.folder / relative, error);
    check(!error && fs::is_regular_file(path, error), line,
          fmt::format("import {}: no such file in {}, nor one of the recipes {}", name,
                      printable(session_.folder.string()), fmt::join(recipe_names(), ", ")));
    check(is_below(path, folder), line,
          fmt::format("import {}: a link that leads out of the folder of the recipe", name));
    return path;
  }

  void add_names(const YamlNode& node, RecipeRule& rule) {
    for (std::string& text : words(node)) {
      Pattern pattern = [&] {
        try {
          return Pattern(text, session_.budget);
        } catch (const ValueError& e) {
          throw FormatError(fmt::format("{}:{}: {}", file_, node.line, e.what()));
        }
      }();
      if (pattern.exact()) {
        rule.names.insert(std::move(text));
        continue;
      }
      rule.patterns.push_back(std::move(pattern));
      check(++session_.patterns <= kMaxPatterns, node.line,
            fmt::format("more than {} globs and expressions", kMaxPatterns));
    }
  }

  RecipeRule rule(const YamlNode& node) {
    RecipeRule rule;
    rule.line = node.line;
    take(node, "a rule",
         {{"match", [&](const YamlNode& value) { add_names(value, rule); }},
          {"kind",
           [&](const YamlNode& value) {
             rule.kinds = words(value);
             for (const std::string& kind : rule.kinds) check_name(value, kind, kinds_);
           }},
          {"family", [&](const YamlNode& value) { rule.families = words(value); }},
          {"action", [&](const YamlNode& value) { rule.action = action(value); }}});
    check(has(node, "action"), node.line, "a rule without an action");
    check(node.keys.size() > 1, node.line, "a rule without match, kind or family");
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      if (node.keys[i].text == "action") continue;
      if (!rule.text.empty()) rule.text += ", ";
      rule.text += fmt::format("{} {}", node.keys[i].text, fmt::join(words(node.items[i]), " "));
    }
    return rule;
  }

  const std::string& file_;
  Session& session_;
  const std::vector<std::string> kinds_ = layer_kinds();
};

/// Reads the text of a recipe and of its imports.
void read_text(Recipe& recipe, Session& session) {
  session.open.push_back(recipe.file);
  const YamlNode top = parse_yaml(recipe.text, recipe.file, kMaxBytes);
  Reader(recipe.file, session).read(top, recipe);
  session.open.pop_back();
}

constexpr std::string_view kLinearKind = "linear";

/// The kinds of linear layers; the first rule that fits decides.
constexpr NameRule kLayerKinds[] = {
    {"shared_experts", "", Where::any, "*shared_expert* *shared_mlp*"},
    {"attention", "", Where::any, "*attn* *attention* *Attention*"},
    {"mlp", "", Where::any, "*mlp* *ffn* feed_forward* *_feed_forward ff DenseReluDense"},
    {"attention", "", Where::last,
     "q_proj k_proj v_proj o_proj qkv_proj qkv wq wk wv wo q k v o query key value to_q to_k to_v "
     "to_out.0 Wqkv Wo"},
    {"mlp", "", Where::last,
     "gate_proj up_proj down_proj gate_up_proj w1 w2 w3 wi wi_0 wi_1 wo fc1 fc2 *linear1 *linear2 "
     "intermediate.dense output.dense dense_h_to_4h dense_4h_to_h fc_in fc_out c_fc"},
};

std::string with_underscores(std::string_view kind) {
  std::string text(kind);
  std::ranges::replace(text, ' ', '_');
  return text;
}

}  // namespace

std::string_view action_name(Action action) {
  return std::ranges::find(kActions, action, &std::pair<std::string_view, Action>::second)->first;
}

bool RecipeRule::fits_family(const std::vector<std::string>& model_types) const {
  MatchBudget budget;
  return families.empty() || std::ranges::any_of(families, [&](const std::string& glob) {
           return std::ranges::any_of(model_types, [&](const std::string& type) {
             return Glob(glob).matches(type, budget);
           });
         });
}

bool RecipeRule::names_exactly(std::string_view tensor) const {
  return names.contains(tensor) || names.contains(module_of(tensor));
}

bool RecipeRule::fits(std::string_view tensor, std::string_view kind) const {
  if (!kinds.empty() && std::ranges::find(kinds, kind) == kinds.end()) return false;
  if (names.empty() && patterns.empty()) return true;
  return names_exactly(tensor) ||
         std::ranges::any_of(patterns, [&](const Pattern& p) { return p.matches(tensor); });
}

std::string Recipe::title() const {
  return name.empty() ? printable(fs::path(file).filename().string()) : "recipe " + name;
}

Recipe parse_recipe(const std::string& text, const std::string& file) {
  Recipe recipe;
  recipe.file = file;
  recipe.text = text;
  Session session{.folder = fs::absolute(file).parent_path(), .open = {}};
  try {
    read_text(recipe, session);
  } catch (const FormatError& e) {
    const std::string_view what = e.what();
    if (what.find("; hint: ") != what.npos) throw;
    throw FormatError(fmt::format("{}; hint: correct the recipe", what), e.code);
  }
  return recipe;
}

Recipe read_recipe(const std::string& name_or_file) {
  if (const NamedRecipe* named = find_named(name_or_file)) {
    Recipe recipe = parse_recipe(std::string(named->text), file_of(*named));
    recipe.name = named->name;
    return recipe;
  }
  std::error_code error;
  require<ValueError>(fs::is_regular_file(name_or_file, error), ErrorCode::not_a_choice,
                      "recipe = '{}', must be one of {}, or a file", printable(name_or_file),
                      fmt::join(recipe_names(), ", "));
  return parse_recipe(read_model_text(name_or_file), name_or_file);
}

std::string layer_kind(std::string_view tensor, const Selection& selection) {
  const std::string& kind = selection.kind;
  if (kind == "expert" || kind == "stacked experts") return "experts";
  if (kind != kLinearKind) return with_underscores(kind);
  const std::vector<std::string_view> parts = split_name(module_of(tensor));
  for (const NameRule& rule : kLayerKinds)
    if (matches_one(rule.names, rule.where, parts)) return std::string(rule.kind);
  return std::string(kLinearKind);
}

std::vector<std::string> layer_kinds() {
  std::vector<std::string> kinds;
  const auto add = [&](std::string_view kind) {
    std::string text = with_underscores(kind);
    if (!kind.empty() && std::ranges::find(kinds, text) == kinds.end())
      kinds.push_back(std::move(text));
  };
  for (const std::string_view kind : {"attention", "mlp", "experts", "shared_experts", "linear"})
    add(kind);
  for (const std::span<const NameRule> table :
       {std::span<const NameRule>(kModules), std::span<const NameRule>(kTowers),
        std::span<const NameRule>(kNorms)})
    for (const NameRule& rule : table) add(rule.kind);
  for (const Family* family : families())
    for (const std::span<const NameRule> table : {family->towers, family->modules})
      for (const NameRule& rule : table) add(rule.kind);
  for (const std::string_view kind : {"convolution", "bias", "vector", "other"}) add(kind);
  return kinds;
}

}  // namespace nvfp4::checkpoint

std::vector<std::string> nvfp4::recipe_names() {
  std::vector<std::string> names;
  for (const auto& recipe : checkpoint::named_recipes()) names.emplace_back(recipe.name);
  return names;
}
