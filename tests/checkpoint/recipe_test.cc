#include "checkpoint/recipe/recipe.h"

#include "checkpoint/architectures.h"
#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

/// Recipes: which layers become what.
namespace nvfp4::recipe_test {

using checkpoint::parse_recipe;

class Recipes : public ::testing::Test {
 protected:
  QuantizeReport run(const std::string& recipe, const std::string& out = "out") {
    return quantize_checkpoint(in_, dir_ / out, {"--recipe", recipe, "--overwrite"});
  }
  QuantizeReport run_rules(const std::string& rules) {
    write_text(dir_ / "r.yaml", "rules:\n" + rules);
    return run((dir_ / "r.yaml").string());
  }
  /// Modules that are quantized.
  static std::set<std::string> quantized(const QuantizeReport& report) {
    std::set<std::string> names;
    for (const TensorReport& t : report.tensors)
      if (t.action == "quantized") names.insert(t.name);
    return names;
  }
  static bool is_quantized(const QuantizeReport& report, const std::string& part) {
    for (const std::string& name : quantized(report))
      if (name.find(part) != name.npos) return true;
    return false;
  }
  static bool warns(const QuantizeReport& report, std::string_view part) {
    return says(report.warnings, part);
  }
  void write_experts() {
    std::vector<TestTensor> tensors;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      tensors.push_back(random_tensor("model.layers.0." + name + ".weight", std::move(shape)));
    };
    for (const char* q : {"q_proj", "k_proj", "v_proj", "o_proj"})
      add(std::string("self_attn.") + q, {64, 64});
    for (const char* p : {"mlp.experts.0.", "mlp.experts.1.", "mlp.shared_experts."})
      for (const char* w : {"gate_proj", "up_proj", "down_proj"}) add(std::string(p) + w, {64, 64});
    add("mlp.gate", {2, 64});
    write_model(in_, {tensors}, "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 64}");
  }
  const TempDir dir_;
  const fs::path in_ = dir_ / "in";
};

TEST_F(Recipes, OfAllGivesTheBytesWithoutOne) {
  write_tiny_llama(in_);
  quantize_checkpoint(in_, dir_ / "plain");
  run("all");
  EXPECT_EQ(files_of(dir_ / "out"), files_of(dir_ / "plain"));
}

TEST_F(Recipes, NamedOnesChooseKindsOfLayers) {
  write_experts();
  const QuantizeReport mlp = run("mlp");
  EXPECT_EQ(quantized(mlp).size(), 9u);
  EXPECT_FALSE(is_quantized(mlp, "self_attn"));
  const QuantizeReport experts = run("experts");
  EXPECT_EQ(quantized(experts).size(), 6u);
  EXPECT_FALSE(is_quantized(experts, "shared_experts"));
  const QuantizeReport all = run("w4a16");
  EXPECT_EQ(quantized(all).size(), 13u);
  EXPECT_EQ(all.scheme, Scheme::w4a16);
  EXPECT_FALSE(LoadedModel(dir_ / "out").has("model.layers.0.self_attn.q_proj.input_scale"));
}

TEST_F(Recipes, TheLastRuleThatFitsDecides) {
  write_tiny_llama(in_);
  const QuantizeReport report = run_rules(
      "  - {match: '*', action: keep}\n"
      "  - {kind: [attention, mlp], action: nvfp4}\n"
      "  - {match: 're:.*layers\\.0\\..*', kind: attention, action: keep}\n"
      "  - {match: '*.down_proj', family: qwen*, action: keep}\n");
  EXPECT_EQ(quantized(report).size(), 10u);
  EXPECT_FALSE(is_quantized(report, "layers.0.self_attn"));
  EXPECT_TRUE(is_quantized(report, "layers.1.self_attn.q_proj"));
  EXPECT_TRUE(is_quantized(report, "down_proj"));
  ASSERT_EQ(report.rules.size(), 4u);
  EXPECT_EQ(report.rules[0].caught, 14);
  EXPECT_EQ(report.rules[0].decided, 0);
  EXPECT_EQ(report.rules[1].decided, 10);
  EXPECT_EQ(report.rules[2].decided, 4);
  EXPECT_EQ(report.rules[2].line, 4);
  EXPECT_EQ(report.rules[2].first, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(report.rules[3].caught, 0) << "of another family";
  EXPECT_TRUE(warns(report, "r.yaml, line 5: match *.down_proj, family qwen*: matches no weight"));
  for (const TensorReport& t : report.tensors) {
    EXPECT_EQ(t.reason == "r.yaml, line 4", t.name.find("layers.0.self_attn") != t.name.npos);
  }
}

TEST_F(Recipes, DefaultExclusionsNeedAKindOrName) {
  write_tiny_llama(in_);
  const QuantizeReport glob = run_rules("  - {match: '*lm_head*', action: nvfp4}\n");
  EXPECT_FALSE(is_quantized(glob, "lm_head"));
  EXPECT_TRUE(
      warns(glob, "line 2: match *lm_head*: matches no weight that is quantized by default"));
  for (const char* condition : {"kind: lm_head", "match: lm_head", "match: lm_head.weight"}) {
    const QuantizeReport named = run_rules(fmt::format("  - {{{}, action: nvfp4}}\n", condition));
    EXPECT_TRUE(is_quantized(named, "lm_head")) << condition;
    EXPECT_TRUE(warns(named, "most loaders build lm_head (lm_head) unquantized"));
  }
  expect_error<ValueError>([&] { run_rules("  - {match: model.norm.weight, action: nvfp4}\n"); },
                           {"r.yaml, line 2", "model.norm.weight cannot be quantized"});
}

TEST_F(Recipes, WeightsOnlyStandsBesideWeightsWithInputs) {
  write_tiny_llama(in_);
  const QuantizeReport report = run_rules("  - {kind: attention, action: w4a16}\n");
  EXPECT_EQ(report.rules.at(0).action, "w4a16");
  const LoadedModel out(dir_ / "out");
  std::size_t inputs = 0;
  for (const std::string& name : quantized(report)) {
    const bool has = out.has(name.substr(0, name.rfind('.')) + ".input_scale");
    EXPECT_EQ(has, name.find("self_attn") == name.npos) << name;
    inputs += has;
  }
  EXPECT_EQ(inputs, 6u);
  EXPECT_THAT(read_text(dir_ / "out" / "README.md"), HasSubstr("except those of 8 layers (W4A16)"));
  EXPECT_FALSE(verify_checkpoint(verify_options(dir_ / "out", in_)).broken());
  const QuantizeReport all = run_rules("  - {match: '*', action: w4a16}\n");
  EXPECT_EQ(all.scheme, Scheme::w4a16) << "no layer has quantized inputs";
  EXPECT_EQ(LoadedFolder(dir_ / "out").quantization()["quant_algo"], "W4A16_NVFP4");
  expect_error<ValueError>([&] { run_rules("  - {match: '*.0.*k_proj', action: w4a16}\n"); },
                           {"k_proj gets w4a16 (r.yaml, line 2)", "one action"});
}

TEST_F(Recipes, IgnoreAndIncludeWin) {
  write_tiny_llama(in_);
  const QuantizeReport report = quantize_checkpoint(
      in_, dir_ / "out",
      {"--recipe", "mlp", "--ignore", "*down_proj", "--include", "*layers.1.self_attn*"});
  EXPECT_FALSE(is_quantized(report, "down_proj"));
  EXPECT_FALSE(is_quantized(report, "layers.0.self_attn"));
  EXPECT_TRUE(is_quantized(report, "layers.1.self_attn.q_proj"));
}

TEST_F(Recipes, WhatLoadersFuseGetsOneAction) {
  write_tiny_llama(in_);
  expect_error<ValueError>([&] { run_rules("  - {match: '*.0.*k_proj', action: keep}\n"); },
                           {"model.layers.0.self_attn.k_proj gets keep (r.yaml, line 2)",
                            "no rule fits it", "one action"});
  EXPECT_FALSE(fs::exists(dir_ / "out" / "config.json"));
  fs::remove_all(in_);
  write_experts();
  expect_error<ValueError>([&] { run_rules("  - {match: '*experts.1.*', action: keep}\n"); },
                           {"experts.1.", "one action"});
}

TEST_F(Recipes, KeepDequantizesNvfp4OfTheInput) {
  write_tiny_llama(in_);
  quantize_checkpoint(in_, dir_ / "packed");
  quantize_checkpoint(dir_ / "packed", dir_ / "out", {"--recipe", "mlp"});
  const LoadedModel out(dir_ / "out");
  EXPECT_EQ(out.at("model.layers.0.self_attn.q_proj.weight").dtype, safetensors::DType::bf16);
  EXPECT_EQ(out.at("model.layers.0.mlp.up_proj.weight").dtype, safetensors::DType::u8);
}

TEST_F(Recipes, StandInTheOutputAndItsCard) {
  write_tiny_llama(in_);
  const QuantizeReport report = run_rules("  # ``` why\n  - {kind: attention, action: keep}\n");
  EXPECT_EQ(report.recipe, "r.yaml");
  const auto config = nlohmann::json::parse(read_text(dir_ / "out" / "config.json"));
  EXPECT_EQ(config.at("nvfp4_cpp").at("recipe"), read_text(dir_ / "r.yaml"));
  const std::string card = read_text(dir_ / "out" / "README.md");
  EXPECT_THAT(card, HasSubstr("````yaml\n" + read_text(dir_ / "r.yaml") + "````\n"));
  EXPECT_THAT(card, HasSubstr("--recipe r.yaml"));
  run("mlp");
  EXPECT_EQ(nlohmann::json::parse(read_text(dir_ / "out" / "config.json"))["nvfp4_cpp"]["recipe"],
            "mlp");
}

TEST_F(Recipes, AnotherOneIsNoResumption) {
  write_tiny_llama(in_);
  auto options = quantize_options(in_, dir_ / "new", {"--recipe", "mlp"});
  options.ranks = 2;
  quantize_checkpoint(options);
  options.rank = 1;
  options.recipe = "w4a16";
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"differ"});
  options.recipe = "experts";
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"recipe was"});
}

TEST_F(Recipes, ErrorsNameTheLine) {
  for (const table::Row& row : table::rows_of("recipes.txt")) {
    const std::string text = std::regex_replace(row.name, std::regex(R"(\\n)"), "\n");
    for (const std::string& part : table::Expected(row.column(0)).texts)
      expect_error<FormatError>([&] { parse_recipe(text, "f.yaml"); }, {part, "; hint: "});
  }
  expect_error<ValueError>([] { checkpoint::read_recipe("mpl"); },
                           {"recipe = 'mpl', must be one of all, deepseek-r1", "mlp", "or a file"});
  expect_error<ValueError>([&] { checkpoint::read_recipe(dir_.path().string()); }, {"or a file"});
}

TEST_F(Recipes, ImportedRulesPrecedeTheOwnRules) {
  write_tiny_llama(in_);
  fs::create_directory(dir_ / "parts");
  const std::string part = "scheme: w4a16\nkv_cache: fp8\nrules:\n- {match: '*', action: keep}\n";
  const std::string text =
      "import: [parts/r.yaml, mlp]\nscheme: w4a4\nrules:\n"
      "- {match: '*down_proj', action: keep}\n";
  write_text(dir_ / "parts" / "r.yaml", part);
  write_text(dir_ / "r.yaml", text);
  const QuantizeReport report = run((dir_ / "r.yaml").string());
  EXPECT_EQ(quantized(report).size(), 4u);
  EXPECT_FALSE(is_quantized(report, "down_proj"));
  EXPECT_EQ(report.scheme, Scheme::w4a4);
  std::vector<std::pair<std::string, int>> rules;
  for (const RecipeRuleReport& rule : report.rules) rules.emplace_back(rule.text, rule.line);
  EXPECT_EQ(rules, (std::vector<std::pair<std::string, int>>{
                       {"r.yaml: match *", 4},
                       {"recipe mlp: match *", 3},
                       {"recipe mlp: kind mlp experts shared_experts", 5},
                       {"match *down_proj", 4}}));
  const auto config = nlohmann::json::parse(read_text(dir_ / "out" / "config.json"));
  EXPECT_TRUE(config.at("nvfp4_cpp")
                  .at("recipe")
                  .get<std::string>()
                  .starts_with(text + "---\n# parts/r.yaml\n" + part + "---\n# mlp\nabout: "));
  EXPECT_EQ(checkpoint::read_recipe((dir_ / "r.yaml").string()).kv_cache, "FP8");
}

TEST_F(Recipes, ImportsStayInTheFolderAndEnd) {
  const fs::path folder = dir_ / "recipes", outside = dir_ / "outside.yaml";
  fs::create_directory(folder);
  write_text(outside, "rules: []\n");
  fs::create_symlink(outside, folder / "link.yaml");
  write_text(folder / "same.yaml", "rules: []\n");
  fs::create_symlink("same.yaml", folder / "near.yaml");
  write_text(folder / "b.yaml", "import: a.yaml\n");
  std::string many = "import: [mlp";
  for (int i = 0; i < 100; ++i) many += ", mlp";
  const auto read = [&](const std::string& text) {
    write_text(folder / "a.yaml", text);
    return checkpoint::read_recipe((folder / "a.yaml").string());
  };
  EXPECT_TRUE(read("import: near.yaml\n").rules.empty());
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"import: link.yaml\n", "a.yaml:1: import link.yaml: a link that leads out"},
           {"import: a.yaml\n", "a.yaml:1: import a.yaml: imports itself"},
           {"import: b.yaml\n", "b.yaml:1: import a.yaml: imports itself"},
           {"import: outside.yaml\n", "no such file"},
           {many + "]\n", "more than 100 imports"}})
    expect_error<FormatError>([&] { read(text); }, {said});
}

TEST(NamedRecipes, EachCanBeRead) {
  for (const std::string& name : recipe_names()) {
    const checkpoint::Recipe recipe = checkpoint::read_recipe(name);
    EXPECT_FALSE(recipe.about.empty()) << name;
    EXPECT_EQ(recipe.title(), "recipe " + name);
  }
}

TEST_F(Recipes, HostilePatternStopsAtItsBudget) {
  write_tiny_llama(in_);
  expect_error<ValueError>(
      [&] { run_rules("  - {match: 're:(?=(m*.*.*.*.*.*.*.*)*z).*', action: keep}\n"); }, {"re:"});
}

TEST(Recipe, HoldsAnyNamesAndTwoThousandPatterns) {
  const auto recipe = [](std::string_view text, int count) {
    std::string rules = "rules:\n- match: [x";
    for (int i = 0; i < count; ++i) rules += fmt::format(",\n   {}{}", text, i);
    return parse_recipe(rules + "]\n  action: keep\n", "f.yaml");
  };
  EXPECT_EQ(recipe("a", 3000).rules.at(0).names.size(), 3001U);
  EXPECT_EQ(recipe("a*", 2000).rules.at(0).patterns.size(), 2000U);
  expect_error<FormatError>([&] { recipe("a*", 2001); }, {"f.yaml:", "more than 2000 globs"});
}

/// The language models' layers have a kind, and what has "linear" alone are a few of other models.
TEST(LayerKinds, CoverTheLayersOfTransformersArchitectures) {
  std::map<std::string, int> kinds;
  std::set<std::string> others;
  for (const checkpoint::ArchitectureRow& row : checkpoint::architecture_rows()) {
    const auto selection = checkpoint::classify(row.tensor, row.architecture);
    const std::string kind = checkpoint::layer_kind(row.tensor.name, selection);
    const auto known = checkpoint::layer_kinds();
    EXPECT_NE(std::ranges::find(known, kind), known.end()) << kind;
    if (!selection.quantize) continue;
    ++kinds[kind];
    if (kind == "linear") others.insert(row.architecture);
  }
  EXPECT_LT(10 * kinds["linear"], kinds["attention"] + kinds["mlp"]);
  for (const char* name : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss",
                           "deepseek_v3", "glm4_moe", "llama4", "gemma3", "phi3", "t5", "bert",
                           "granitemoe", "qwen3_next", "kimi_linear", "cohere2", "olmoe"})
    EXPECT_FALSE(others.contains(name)) << name;
  EXPECT_EQ(kinds.size(), 5u);
}

}  // namespace nvfp4::recipe_test
