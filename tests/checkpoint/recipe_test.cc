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
  const TempDir dir_;
  const fs::path in_ = dir_ / "in";
};

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
