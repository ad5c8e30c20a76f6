// Lists of exclusions, matched as loaders match them.
#include "checkpoint/formats/excludes.h"

#include "checkpoint/architectures.h"
#include "checkpoint/families/select.h"
#include "checkpoint/match/expression.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/match/pattern.h"

namespace nvfp4::checkpoint::excludes_test {

using Strings = std::vector<std::string>;
using testing::ElementsAreArray;

struct Model {
  std::vector<KeptModule> kept;
  Strings quantized, types = {};

  ConfigFacts facts() const {
    ConfigFacts facts = {Scheme::w4a4, kept, quantized};
    facts.model_types = types;
    return facts;
  }
};

/// Matches a list of ModelOpt as vLLM does, with and without names that it replaces, and SGLang.
/// Sources: vLLM 0.32, quantization/modelopt.py; SGLang 0.5.23, quantization/modelopt_quant.py.
class Globs {
 public:
  explicit Globs(const Strings& entries) {
    for (const std::string& entry : entries) {
      literals_.push_back(entry);
      globs_.emplace_back(entry);
      const bool is_split = entry.size() > 1 && entry.ends_with('*') && !entry.ends_with(".*");
      const std::string start = entry.substr(0, entry.size() - is_split);
      split_.emplace_back(start);
      if (is_split) split_.emplace_back(start + ".*");
    }
  }
  /// Reports whether all loaders exclude the module.
  bool cover(const std::string& name) const { return any_of(split_, name); }
  /// Reports whether a loader excludes the module.
  bool hit(const std::string& name) const {
    if (any_of(globs_, name)) return true;
    for (const std::string& literal : literals_)
      if (name.find(literal) != name.npos) return true;
    return std::ranges::any_of(
        split_name(name), [&](std::string_view part) { return any_of(globs_, std::string(part)); });
  }

 private:
  bool any_of(const std::vector<Glob>& globs, const std::string& name) const {
    return std::ranges::any_of(globs,
                               [&](const Glob& glob) { return glob.matches(name, budget_); });
  }

  Strings literals_;
  std::vector<Glob> globs_, split_;
  mutable MatchBudget budget_;
};

/// Matches a list of compressed-tensors: re.match, or equal names.
class Expressions {
 public:
  explicit Expressions(const Strings& entries) {
    for (const std::string& entry : entries)
      if (entry.starts_with("re:"))
        expressions_.emplace_back(entry.substr(3), Expression::Extent::start);
      else
        names_.insert(entry);
  }
  bool cover(const std::string& name) const {
    return names_.contains(name) ||
           std::ranges::any_of(expressions_, [&](const Expression& e) { return e.matches(name); });
  }

 private:
  std::set<std::string> names_;
  std::vector<Expression> expressions_;
};

/// Returns the names that loaders give to a module.
Strings names_of(const std::string& module) {
  Strings names = {module, "model." + module, "language_model." + module};
  if (module.starts_with("model."))
    for (const char* prefix : {"", "language_model.model.", "model.language_model."})
      names.push_back(prefix + module.substr(std::string_view("model.").size()));
  return names;
}

void expect_right(const Model& model, const std::string& what = {}) {
  const ExcludeList list = exclude_globs(model.facts());
  const Globs globs(list.entries);
  const Expressions expressions(exclude_expressions(model.facts()));
  const auto text = [&] { return what + ": " + testing::PrintToString(list.entries); };
  for (const KeptModule& kept : model.kept)
    for (const std::string& name : names_of(kept.name)) {
      if (!kept.linear || name.ends_with("lm_head")) continue;
      EXPECT_TRUE(globs.cover(name)) << name << " of " << text();
      EXPECT_TRUE(expressions.cover(name)) << name << " of " << text();
    }
  for (const std::string& module : model.quantized)
    for (const std::string& name : names_of(module)) {
      EXPECT_EQ(globs.hit(name), false) << name << " of " << text();
      EXPECT_FALSE(expressions.cover(name)) << name << " of " << what;
    }
  EXPECT_THAT(list.conflicts, testing::IsEmpty()) << what;
}

/// Returns the names in a text. '@' stands for an attention layer.
Strings names_in(std::string text) {
  for (std::size_t at = 0; (at = text.find('@')) != text.npos;)
    text.replace(at, 1, "model.layers.0.self_attn.");
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// Returns the model with these modules. '!' ends the name of a kept one that is not linear.
Model model_of(const std::string& kept, const std::string& quantized) {
  Model model = {{}, names_in(quantized)};
  for (const std::string& name : names_in(kept))
    model.kept.push_back({name.substr(0, name.find('!')), !name.ends_with('!')});
  return model;
}

TEST(Excludes, SmallestListsOfSubtrees) {
  struct Case {
    const char *kept, *quantized, *globs, *expressions;
  };
  const char* const llama = "@q_proj model.layers.0.mlp.gate_proj model.layers.11.mlp.gate_proj";
  const Case cases[] = {
      {"lm_head model.embed_tokens! model.layers.0.input_layernorm! model.norm!", llama,
       "lm_head *embed_tokens *norm", "lm_head"},
      {"visual.blocks.0.attn.qkv visual.merger.mlp.0", llama, "lm_head *visual*",
       "lm_head re:(.*\\.)?visual\\..*"},
      {"model.layers.1.mlp.up_proj model.layers.1.mlp.gate_proj", llama, "lm_head *layers.1.*",
       "lm_head re:(.*\\.)?layers\\.1\\..*"},
      {"model.layers.0.mlp.gate model.layers.0.mlp.shared_expert_gate", llama, "lm_head *gate",
       "lm_head re:(.*\\.)?gate$ re:(.*\\.)?shared_expert_gate$"},
      {"language_model.lm_head tower.proj", "language_model.model.layers.0.fc1",
       "lm_head *lm_head *tower*", "lm_head re:(.*\\.)?lm_head$ re:(.*\\.)?tower\\..*"},
      {"", "language_model.lm_head", "", ""},
      {"model.layers.0.mlp.experts.0.w1 model.layers.0.mlp.experts.1.w1", llama,
       "lm_head *experts*", "lm_head re:(.*\\.)?experts\\..*"},
      {"model.layers.0.mlp.experts.0.w1", "model.layers.1.mlp.experts.0.w1", "lm_head *layers.0.*",
       "lm_head re:(.*\\.)?layers\\.0\\..*"},
      {"a.experts.0.w1", "a.experts.1.w1", "lm_head a.experts.0.w1", "lm_head a.experts.0.w1"},
      {"visual.proj", "nonvisuals.fc1 a.visual", "lm_head *visual.*",
       "lm_head re:(.*\\.)?visual\\..*"},
      {"t\u00f6wer.x", "b.toer.y", "lm_head *t\u00f6wer*", "lm_head re:(.*\\.)?t\u00f6wer\\..*"},
      {"to+er.x", "b.toer.y", "lm_head *to+er*", "lm_head re:(.*\\.)?to\\+er\\..*"},
  };
  for (const Case& c : cases) {
    const Model model = model_of(c.kept, c.quantized);
    EXPECT_EQ(exclude_globs(model.facts()).entries, names_in(c.globs));
    EXPECT_EQ(exclude_expressions(model.facts()), names_in(c.expressions));
    if (!std::string_view(c.kept).starts_with("a.experts")) expect_right(model);
  }
}

TEST(Excludes, FusedNamesAreCovered) {
  struct Case {
    const char *kept, *quantized, *fused;
    bool covered;
  };
  const Case cases[] = {
      {"@q_proj @k_proj @v_proj", "@o_proj", "@qkv_proj", true},
      {"@wq_a @wkv", "@wo_b", "@wqkv_a", true},
      {"", "@wq_a @wkv", "@wqkv_a", false},
      {"m.0.mlp.gate_proj m.0.mlp.up_proj", "m.0.mlp.down_proj", "m.0.mlp.gate_up_proj", true},
      {"@k_proj", "@q_proj @o_proj", "@qkv_proj", false},
      {"@in_proj_a @in_proj_b", "@in_proj_qkv", "@in_proj_ba", true},
      {"@q_proj @k_proj @v_proj @b_proj", "@o_proj", "@qkvb_proj", true},
      {"@b_proj", "@q_proj @k_proj @v_proj", "@qkvb_proj", false},
      {"@q_proj @k_proj @v_proj @g_proj", "@o_proj", "@in_proj_qkvg", true},
      {"@q_proj @k_proj @v_proj @g_proj", "@o_proj", "@fused_qkvg_proj", true},
      {"v.0.mlp.fc1 v.0.mlp.fc3", "v.0.mlp.fc2", "v.0.mlp.fc13", true},
      {"v.0.mlp.fc1", "v.0.mlp.fc2 v.0.mlp.fc13", "v.0.mlp.fc13", false},
      // Gemma 4's tower in SGLang.
      {"model.vision_tower.encoder.layers.0.self_attn.q_proj.linear", "@q_proj",
       "vision_tower.encoder.layers.0.self_attn.qkv.qkv_proj", true},
      {"m.0.block_sparse_moe.input_linear", "m.0.attn.q", "m.0.block_sparse_moe.experts", true},
      {"m.1.moe.up_proj", "m.1.moe.experts.0.up_proj", "m.1.moe.experts", false},
      {"model.layers.61.shared_head.head", "model.layers.61.mlp.down_proj", "model.layers.61.head",
       true},
  };
  for (const Case& c : cases) {
    const Globs globs(exclude_globs(model_of(c.kept, c.quantized).facts()).entries);
    const std::string fused = names_in(c.fused)[0];
    EXPECT_EQ(c.covered ? globs.cover(fused) : globs.hit(fused), c.covered) << fused;
  }
}

TEST(Excludes, SecondNamesOfFamiliesAreCovered) {
  struct Case {
    const char *type, *name;
  };
  const Case cases[] = {{"whisper", "proj_out"},
                        {"bert", "cls.predictions.decoder"},
                        {"modernbert", "decoder"},
                        {"blip-2", "language_model.lm_head"},
                        {"kosmos-2.5", "text_model.lm_head"},
                        {"bark", "fine_acoustics.lm_heads.3"},
                        {"dots3_note", "visual.blocks.0.attn.proj"},
                        {"minicpmv4_6", "vpm.encoder.layers.0.mlp.fc1"}};
  for (const Case& c : cases) {
    const Model model = {{}, {"model.layers.0.fc1"}, {c.type}};
    EXPECT_TRUE(Globs(exclude_globs(model.facts()).entries).cover(c.name)) << c.name;
    EXPECT_TRUE(Expressions(exclude_expressions(model.facts())).cover(c.name)) << c.name;
    const Model other = {{}, {c.name}, {c.type}};
    EXPECT_FALSE(Globs(exclude_globs(other.facts()).entries).hit(c.name)) << c.name;
    EXPECT_FALSE(Expressions(exclude_expressions(other.facts())).cover(c.name)) << c.name;
  }
  const Model one = {{{"lm_head"}}, {"model.layers.0.fc1"}, {"llama", "llama"}};
  EXPECT_THAT(exclude_expressions(one.facts()), ElementsAreArray({"lm_head"}));
  const Model several = {{{"lm_head"}}, {"model.layers.0.fc1"}, {"llava", "llama"}};
  EXPECT_TRUE(Expressions(exclude_expressions(several.facts())).cover("model.lm_head"));
}

TEST(Excludes, NamesInTransformersAreCovered) {
  const Model model = {{{"model.layers.0.attention.dense"}, {"model.layers.0.mlp.gate"}},
                       {"model.layers.0.mlp.up_proj"},
                       {"bailing_hybrid"}};
  const Expressions list(exclude_expressions(model.facts()));
  EXPECT_TRUE(list.cover("model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(list.cover("model.layers.0.mlp.up_proj"));
  // transformers puts quantized layers into the tower that has "linear_1".
  const Model inside = {
      {{"multi_modal_projector.linear_1"}}, {"patch_merge_mlp.linear_1"}, {"minimax_m3_vl"}};
  const Expressions parts(exclude_expressions(inside.facts()));
  EXPECT_TRUE(parts.cover("model.multi_modal_projector.linear_1"));
  EXPECT_FALSE(parts.cover("model.multi_modal_projector.merge_linear_1"));
}

TEST(Excludes, NamesThatNoEntryTellsApartAreReported) {
  const Model model = {{{"output"}}, {"layers.0.output.dense"}};
  const ExcludeList list = exclude_globs(model.facts());
  EXPECT_THAT(list.entries, ElementsAreArray({"lm_head", "output"}));
  EXPECT_THAT(list.conflicts,
              ElementsAreArray({"output is excluded; loaders that match substrings also exclude "
                                "layers.0.output.dense"}));
  // A table needs no entry.
  const Model table = {{{"output", false}}, {"layers.0.output.dense"}};
  EXPECT_THAT(exclude_globs(table.facts()).entries, ElementsAreArray({"lm_head"}));
}

/// Names with few parts, so that many are parts of others.
TEST(Excludes, RandomTreesAreToldApart) {
  std::mt19937 random(5);
  const char* const words[] = {"model", "layers",    "0",         "1",   "10",     "attn", "a",
                               "gate",  "gate_proj", "self_attn", "mlp", "visual", "x"};
  std::size_t entries = 0, modules = 0;
  for (int round = 0; round < 100; ++round) {
    std::set<std::string> names;
    for (std::size_t n = 2 + random() % 20; n > 0; --n) {
      std::string name = "t" + std::to_string(random() % 3);
      for (std::size_t parts = 1 + random() % 4; parts > 0; --parts)
        name += std::string(".") + words[random() % std::size(words)];
      names.insert(name + ".w");
    }
    Model model;
    for (const std::string& name : names)
      if (random() % 2)
        model.kept.push_back({name});
      else
        model.quantized.push_back(name);
    expect_right(model, testing::PrintToString(names));
    entries += exclude_expressions(model.facts()).size();
    modules += model.kept.size();
  }
  EXPECT_LT(entries, modules) << "subtrees are shorter than names";
}

TEST(Excludes, ListsOfAllArchitecturesAreRight) {
  std::map<std::string, Model> models;
  for (const ArchitectureRow& row : architecture_rows()) {
    Model& model = models[row.architecture];
    model.types = {row.architecture};
    const Selection s = classify(row.tensor, row.architecture);
    const std::string module(module_of(row.tensor.name));
    if (module.find("experts.0.") != module.npos) continue;  // layers are whole only in a plan
    if (s.quantize)
      model.quantized.push_back(module);
    else if (row.tensor.name.ends_with(".weight"))
      model.kept.push_back({module, s.linear});
  }
  EXPECT_FALSE(models.empty());
  for (const auto& [type, each] : models)
    if (type != "git") expect_right(each, type);  // its "output" beside "output.dense"
}

}  // namespace nvfp4::checkpoint::excludes_test
