#include "checkpoint/formats/exclusions.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

using Match = Exclusions::Match;

/// The rule, one entry at a time.
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

TEST(Exclusions, TheListsOfOneCheckpointShareTheirSteps) {
  const std::string name(40, 'a');
  const std::string slow = "re:(?!x)(a|b|ab)*$";
  Declared config, other;
  other.share_budget(config);
  config.compiled->budget().spend(MatchBudget::kSteps - 1, "all but one");
  config.ignore = other.ignore = {slow};
  EXPECT_THROW(Exclusions(other).find(name), FormatError);
  Declared alone;
  alone.ignore = {slow};
  EXPECT_NO_THROW(Exclusions(alone).find(name)) << "another checkpoint has steps of its own";
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
  std::size_t whole = 0, pieces = 0;
  for (int round = 0; round < 3000; ++round) {
    Declared d;
    if (round % 3 == 0) d.method = "compressed-tensors";
    for (std::size_t n = random() % 6; n > 0; --n) d.ignore.push_back(word("ab.*?", 5));
    if (round % 7 == 0) d.ignore.push_back("model.a*");
    const Exclusions exclusions(d);
    for (int i = 0; i < 10; ++i) {
      const std::string module = word("ab.", 3);
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

/// Expressions that RE2 takes, globs that differ in what is literal, and some that begin with a
/// star.
TEST(Exclusions, ManyPatternsMeetManyModules) {
  Declared d;
  for (int i = 0; i < 300; ++i) {
    const std::string number = std::to_string(i);
    d.ignore.push_back("re:.*layers\\." + number + "\\.(mlp|self_attn)\\.x_proj");
    d.ignore.push_back("model.layers." + number + ".y_proj*");
    d.ignore.push_back("*layers." + number + ".z_proj");
  }
  const Exclusions exclusions(d);
  int found = 0;
  for (int i = 0; i < 100; ++i)
    for (const char* last : {"mlp.x_proj", "y_proj", "z_proj", "w_proj"})
      found +=
          exclusions.find("model.layers." + std::to_string(i) + "." + last).match != Match::none;
  EXPECT_EQ(found, 300);
}

/// One by one, these are 3.6 · 10^9 comparisons: minutes.
TEST(Exclusions, ManyNamesMeetManyModules) {
  Declared d;
  const auto module = [](int i) {
    return "model.layers." + std::to_string(i / 768) + ".mlp.experts." + std::to_string(i % 768) +
           ".down_proj";
  };
  for (int i = 0; i < 60'000; i += 2) d.ignore.push_back(module(i));
  const auto begin = std::chrono::steady_clock::now();
  const Exclusions exclusions(d);
  int found = 0;
  for (int i = 0; i < 60'000; ++i) found += exclusions.find(module(i)).match == Match::whole;
  EXPECT_EQ(found, 30'000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace nvfp4::checkpoint
