#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/hub/hub.h"

/// The card in a quantized folder.
namespace nvfp4::model_card_test {

using checkpoint::front_matter;
using Words = std::vector<std::string>;

constexpr const char* kCard = "README.md";
constexpr const char* kSecond = "README-NVFP4.md";

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

struct ModelCard : FolderTest {};

TEST_F(ModelCard, HasCommandCostAndUsage) {
  write_tiny_llama(dir / "tiny");
  const QuantizeReport report = quantize_checkpoint(
      dir / "tiny", dir / "out", {"--method", "mse", "--ignore", "re:.*o_proj", "it's"});
  EXPECT_EQ(report.card, kCard);
  const std::string card = read_text(dir / "out" / kCard);
  auto front = front_matter(card);
  EXPECT_EQ(front["base_model_relation"], Words{"quantized"});
  EXPECT_EQ(front["library_name"], Words{"transformers"});
  EXPECT_EQ(front["tags"], (Words{"nvfp4", "fp4", "w4a4", "modelopt"}));
  EXPECT_FALSE(front.contains("base_model")) << "a folder's name is no name on the hub";
  for (const char* part : {"# LlamaForCausalLM in NVFP4", "nvfp4 quantize path/to/model ",
                           "--method mse", "--ignore 're:.*o_proj'", R"(--ignore 'it'\''s')",
                           "| q_proj | 2 | ", "| all | 12 | ", "| lm_head | 1 | ", "vllm serve",
                           "Tested with vLLM 0.32.0", "nvfp4.transformers", "## Licence"})
    EXPECT_TRUE(has(card, part)) << part << "\n" << card;
  for (const char* untested : {"sglang", "trtllm-serve"})
    EXPECT_FALSE(has(card, untested)) << untested;
  EXPECT_FALSE(has(card, dir.path().string())) << "a path of this machine";
}

TEST_F(ModelCard, NamesModelAndCommitOfTheHubCache) {
  const fs::path snapshot =
      dir.path() / "models--some-org--Tiny-1.0" / "snapshots" / std::string(40, '7');
  write_tiny_llama(snapshot);
  quantize_checkpoint(snapshot, dir / "out");
  const std::string card = read_text(dir / "out" / kCard);
  EXPECT_EQ(front_matter(card)["base_model"], Words{"some-org/Tiny-1.0"});
  EXPECT_TRUE(has(card, "huggingface.co/some-org/Tiny-1.0) at 7777")) << card;
  EXPECT_TRUE(has(card, "nvfp4 quantize some-org/Tiny-1.0 Tiny-1.0-NVFP4")) << card;
}

TEST_F(ModelCard, InputsCardStaysWithItsLicence) {
  write_tiny_llama(dir / "in");
  const std::string source =
      "---\nlicense: other\nlicense_name: \"llama3.1\"\nlanguage:\n- en\n- de\nextra: {a: b}\n"
      "pipeline_tag: text-generation\n---\n# Tiny\n";
  write_text(dir / "in" / kCard, source);
  EXPECT_EQ(quantize_checkpoint(dir / "in", dir / "out").card, kSecond);
  EXPECT_EQ(read_text(dir / "out" / kCard), source);
  const std::string card = read_text(dir / "out" / kSecond);
  auto front = front_matter(card);
  EXPECT_EQ(front["license"], Words{"other"});
  EXPECT_EQ(front["license_name"], Words{"llama3.1"});
  EXPECT_EQ(front["language"], (Words{"en", "de"}));
  EXPECT_EQ(front["pipeline_tag"], Words{"text-generation"});
  EXPECT_TRUE(has(card, "That of the base model: llama3.1.")) << card;
}

TEST_F(ModelCard, EveryRunWritesTheSameCard) {
  write_tiny_llama(dir / "in");
  for (const char* out : {"a", "b"}) quantize_checkpoint(dir / "in", dir / out);
  const std::string card = read_text(dir / "a" / kCard);
  ASSERT_FALSE(card.empty());
  EXPECT_EQ(read_text(dir / "b" / kCard), card);
  run_child("Child.DISABLED_Quantize", {{"CHILD_INPUT", (dir / "in").string()},
                                        {"CHILD_OUTPUT", (dir / "c").string()},
                                        {"CHILD_KILL_AFTER", "21"}});
  ASSERT_TRUE(fs::exists(dir / "c" / "nvfp4.partial.json"));
  ASSERT_FALSE(fs::exists(dir / "c" / kCard));
  auto options = quantize_options(dir / "in", dir / "c", {"--resume"});
  quantize_checkpoint(options);
  EXPECT_EQ(read_text(dir / "c" / kCard), card);
  // The errors of shards that are finished are not known any more; the card there knows them.
  fs::remove(dir / "c" / "config.json");
  quantize_checkpoint(options);
  EXPECT_EQ(read_text(dir / "c" / kCard), card);
  fs::remove(dir / "c" / "config.json");
  fs::remove(dir / "c" / kCard);
  quantize_checkpoint(options);
  EXPECT_TRUE(has(read_text(dir / "c" / kCard), "| all | 14 | not known | not known |"));
}

/// A sum that lacks some errors is not shown.
TEST_F(ModelCard, UnknownErrorsAreNamed) {
  write_tiny_llama(dir / "in");
  run_child("Child.DISABLED_Quantize", {{"CHILD_INPUT", (dir / "in").string()},
                                        {"CHILD_OUTPUT", (dir / "out").string()},
                                        {"CHILD_KILL_AFTER", "21"}});
  const fs::path journal = dir / "out" / "nvfp4.partial.json";
  std::string text = read_text(journal);
  const std::size_t errors = text.find("\"errors\":[");
  ASSERT_NE(errors, std::string::npos);
  for (std::size_t at = errors; at != text.npos; at = text.find("\"errors\":[", at + 1))
    text.replace(at, text.find('\n', at) - at, "\"errors\":[]}");
  write_text(journal, text);
  const QuantizeReport report = quantize_checkpoint(dir / "in", dir / "out", {"--resume"});
  EXPECT_LT(report.shards_reused, report.shards);
  EXPECT_TRUE(has(read_text(dir / "out" / kCard), "| all | 14 | not known | not known |"));
}

TEST_F(ModelCard, FencesARecipeOfBackticks) {
  write_tiny_llama(dir / "in");
  const std::string ticks(200'000, '`');
  write_text(dir / "recipe.yaml",
             "# ``\n# " + ticks + "\nrules:\n- action: keep\n  match: '*.o_proj'\n");
  quantize_checkpoint(dir / "in", dir / "out", {"--recipe", dir / "recipe.yaml"});
  const std::string card = read_text(dir / "out" / kCard);
  EXPECT_TRUE(has(card, "\n" + ticks + "`yaml\n"));
  EXPECT_TRUE(has(card, "\n" + ticks + "`\n"));
}

TEST(FrontMatter, TakesOnlyWordsAndLists) {
  EXPECT_TRUE(front_matter("").empty());
  EXPECT_TRUE(front_matter("# Title\nlicense: mit\n").empty());
  EXPECT_TRUE(front_matter("---\nlicense: mit\n").empty()) << "it has no end";
  auto front = front_matter(
      "---\r\nlicense: mit # free\r\ntags: [a, 'b c', \"d\"]\nnested:\n  license: gpl\nempty:\n"
      "text: |\n  license: gpl\nanchor: &x y\nquote: \"a\\nb\"\nlicense_link: "
      "https://a.b/c#d\n---\n"
      "license: no\n");
  EXPECT_EQ(front.size(), 3u);
  EXPECT_EQ(front["license"], Words{"mit"});
  EXPECT_EQ(front["tags"], (Words{"a", "b c", "d"}));
  EXPECT_EQ(front["license_link"], Words{"https://a.b/c#d"});
  EXPECT_TRUE(front_matter(fmt::format("---\nlicense: {}\n---\n", std::string(1000, 'x'))).empty());
}

}  // namespace nvfp4::model_card_test
