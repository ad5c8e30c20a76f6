#include "checkpoint/verify/checks.h"
#include "testing.h"

namespace nvfp4::checkpoint::exclusions_test {

using Match = Exclusions::Match;

/// The rule, one entry and what is left of one name at a time.
bool entry_matches(const std::string& entry, const std::string& module) {
  if (entry.starts_with("re:"))
    return Expression("(?!\\xFF)(?:" + entry.substr(3) + ")", Expression::Extent::start)
        .matches(module);
  MatchBudget budget;
  for (const std::string& text : {entry, entry.starts_with("model.") ? entry.substr(6) : entry})
    for (std::size_t at = 0;; ++at) {
      if (Glob(text).matches(std::string_view(module).substr(at), budget)) return true;
      at = module.find('.', at);
      if (at == module.npos) break;
    }
  return false;
}

Exclusions::Found plainly(const Declared& d, const std::string& module) {
  for (const std::string& entry : d.ignore)
    if (entry_matches(entry, module)) return {Match::whole, entry};
  if (!d.is_compressed_tensors())
    for (const std::string& entry : d.ignore)
      if (!entry.starts_with("re:") && module.find(entry) != module.npos)
        return {Match::substring, entry};
  return {};
}

TEST(Exclusions, NamesGlobsExpressionsAndPieces) {
  Declared d;
  d.ignore = {"lm_head", "model.layers.0.mlp.gate", "*.o_proj", "re:.*k_proj", "layers.1.self"};
  const Exclusions exclusions(d);
  EXPECT_EQ(exclusions.find("lm_head").match, Match::whole);
  EXPECT_EQ(exclusions.find("language_model.lm_head").entry, "lm_head");
  EXPECT_EQ(exclusions.find("layers.0.mlp.gate").match, Match::whole) << "without 'model.'";
  EXPECT_EQ(exclusions.find("model.layers.0.mlp.gate_proj").match, Match::substring);
  EXPECT_EQ(exclusions.find("model.layers.0.self_attn.o_proj").entry, "*.o_proj");
  EXPECT_EQ(exclusions.find("model.layers.0.self_attn.k_proj").entry, "re:.*k_proj");
  EXPECT_EQ(exclusions.find("model.layers.1.self_attn.v_proj").entry, "layers.1.self");
  EXPECT_EQ(exclusions.find("model.layers.2.self_attn.v_proj").match, Match::none);
  d.method = "compressed-tensors";
  EXPECT_EQ(Exclusions(d).find("model.layers.1.self_attn.v_proj").match, Match::none);
}

TEST(Exclusions, ExpressionsMatchTheStartAsLoadersDo) {
  Declared d;
  d.ignore = {"re:.*self_attn", "re:lm_h", "re:layers.0", "re:.*gate$"};
  const Exclusions exclusions(d);
  EXPECT_EQ(exclusions.find("model.layers.0.self_attn.q_proj").entry, "re:.*self_attn");
  EXPECT_EQ(exclusions.find("lm_head").entry, "re:lm_h");
  EXPECT_EQ(exclusions.find("model.layers.0.mlp.up_proj").match, Match::none);
  EXPECT_EQ(exclusions.find("model.layers.0.mlp.gate").entry, "re:.*gate$");
  EXPECT_EQ(exclusions.find("model.layers.0.mlp.gate_proj").match, Match::none);
}

TEST(Exclusions, AreThoseOfTheRuleOneByOne) {
  std::mt19937 random(7);
  const auto word = [&](const char* letters, std::size_t count) {
    std::string text;
    for (std::size_t n = random() % 7; n > 0; --n) text += letters[random() % count];
    return random() % 4 == 0 ? "model." + text : text;
  };
  // The last four are none of RE2's.
  const char* const expressions[] = {"re:a.*b",       "re:.*b$",     "re:model\\.",
                                     "re:[ab]{2}\\.", "re:b|a$",     "re:(?!.*b).*a",
                                     "re:.*(?<!a)b",  "re:(a|b)\\1", "re:\\u00e9"};
  std::size_t whole = 0, pieces = 0;
  for (int round = 0; round < 3000; ++round) {
    Declared d;
    if (round % 3 == 0) d.method = "compressed-tensors";
    for (std::size_t n = random() % 6; n > 0; --n) d.ignore.push_back(word("ab.*?", 5));
    if (round % 7 == 0) d.ignore.push_back("model.a*");
    for (std::size_t n = random() % 4; n > 0; --n)
      d.ignore.insert(
          d.ignore.begin() + static_cast<std::ptrdiff_t>(random() % (1 + d.ignore.size())),
          expressions[random() % std::size(expressions)]);
    const Exclusions exclusions(d);
    for (int i = 0; i < 10; ++i) {
      const std::string module = (random() % 8 == 0 ? "\u00e9" : "") + word("ab.", 3);
      const Exclusions::Found found = exclusions.find(module), expected = plainly(d, module);
      ASSERT_EQ(found.match, expected.match)
          << module << " of " << ::testing::PrintToString(d.ignore);
      if (found.match == Match::whole) {
        EXPECT_EQ(found.entry, expected.entry) << module;
      }
      whole += found.match == Match::whole;
      pieces += found.match == Match::substring;
    }
  }
  EXPECT_GT(whole, 1000u);
  EXPECT_GT(pieces, 1000u);
}

TEST(Exclusions, ManyNamesMeetManyModules) {
  Declared d;
  const auto module = [](int i) {
    return "model.layers." + std::to_string(i / 768) + ".mlp.experts." + std::to_string(i % 768) +
           ".down_proj";
  };
  for (int i = 0; i < 60'000; i += 2) d.ignore.push_back(module(i));
  const Exclusions exclusions(d);
  int found = 0;
  for (int i = 0; i < 60'000; ++i) found += exclusions.find(module(i)).match == Match::whole;
  EXPECT_EQ(found, 30'000);
  EXPECT_EQ(exclusions.list().calls(), 60'000 * 7) << "one for each part of a name";
}

/// One by one, these are ten million.
TEST(Exclusions, ManyExpressionsAreMatchedAtOnce) {
  Declared d;
  for (int i = 0; i < 5000; ++i)
    d.ignore.push_back("re:.*layers\\." + std::to_string(i) + "\\.(mlp|self_attn)\\.x_proj");
  const Exclusions exclusions(d);
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string layer = "model.layers." + std::to_string(i / 4 * 20);
    const Exclusions::Found whole =
        exclusions.find(layer + (i % 4 ? ".mlp.y_proj" : ".mlp.x_proj"));
    found += whole.match == Match::whole;
    if (i == 400) {
      EXPECT_EQ(whole.entry, d.ignore[2000]);
    }
  }
  EXPECT_EQ(found, 250);
  EXPECT_LE(exclusions.list().calls(), 2000 * (5 + 40)) << "parts of names, and 40 times 128";
}

/// One by one, these are ten million.
TEST(Exclusions, ManyGlobsMeetManyModules) {
  Declared d;
  for (int i = 0; i < 5000; ++i)
    d.ignore.push_back("*.layers." + std::to_string(i) + (i % 2 ? ".x_proj*" : ".*.x_proj"));
  const Exclusions exclusions(d);
  int found = 0;
  for (int i = 0; i < 2000; ++i)
    found += exclusions.find("model.layers." + std::to_string(i) + ".x_proj").match == Match::whole;
  EXPECT_EQ(found, 1000);
  EXPECT_LE(exclusions.list().calls(), 2000 * (4 + 1)) << "parts of names, and one glob";
}

TEST(Exclusions, ManyLayersThatAreGlobsMeetManyModules) {
  std::string layers;
  for (int i = 0; i < 5000; ++i)
    layers +=
        fmt::format(R"({}"model.language_model.layers.*.experts.{}.*": {{"quant_algo": "A{}"}})",
                    i == 0 ? "" : ",", i, i);
  const auto budget = std::make_shared<MatchBudget>();
  const auto declared = declared_in_config(
      fmt::format(R"({{"quantization_config": {{"quantized_layers": {{{}}}}}}})", layers),
      "config.json", budget);
  ASSERT_TRUE(declared);
  for (int i = 0; i < 2000; ++i) {
    const std::string* algorithm = declared->layer_algorithm(
        fmt::format("model.language_model.layers.3.experts.{}.down_proj", i));
    ASSERT_TRUE(algorithm);
    EXPECT_EQ(*algorithm, fmt::format("A{}", i));
  }
  EXPECT_EQ(declared->layer_algorithm("model.language_model.layers.3.shared.down_proj"), nullptr);
  EXPECT_LE(MatchBudget::kSteps - budget->left(), 2000 * 400) << "some for each byte of a name";
}

/// An automaton of these has another state at nearly every byte of such names.
TEST(Exclusions, HostileExpressionsSpendTheBudgetOfTheRun) {
  std::mt19937 random(2);
  std::string name;
  for (int i = 0; i < 1000; ++i) name += "ab"[random() % 2];
  Declared d;
  d.file = "config.json";
  d.budget = std::make_shared<MatchBudget>(1'000'000);
  for (int i = 0; i < 1000; ++i) d.ignore.push_back("re:.*a.{30}b" + std::to_string(i));
  const Exclusions exclusions(d);
  expect_error<FormatError>(
      [&] {
        for (int i = 0; i < 1000; ++i) exclusions.find(name + std::to_string(i));
      },
      {"config.json: pattern: .*a.{30}b",
       "what is left of 1000000 steps for all patterns of a run"});
}

TEST(Exclusions, AnExpressionThatIsNoneIsNamed) {
  Declared d;
  d.file = "config.json";
  d.ignore = {"lm_head", "re:(a"};
  expect_error<FormatError>([&] { Exclusions{d}; }, {"config.json", "re:(a"});
}

}  // namespace nvfp4::checkpoint::exclusions_test
