#include "checkpoint/match/pattern.h"

#include "testing.h"

namespace nvfp4::checkpoint::pattern_test {

bool glob_matches(std::string_view pattern, std::string_view name) {
  MatchBudget budget;
  return Glob(std::string(pattern)).matches(name, budget);
}

TEST(Pattern, RefusesAnEmptyPatternAndAnInvalidExpression) {
  expect_error<ValueError>([] { Pattern(""); }, {"pattern", "empty"});
  expect_error<ValueError>([] { Pattern("re:("); }, {"re:(", "regular expression"});
}

TEST(Pattern, SaysWhereAnExpressionIsWrong) {
  const auto refuses = [](const std::string& text, std::string_view what, std::string_view where) {
    expect_error<ValueError>([&] { Pattern{text}; }, {text.substr(0, 200), what, where});
  };
  refuses("re:a(b", "missing closing parenthesis", "at byte 3 ");
  refuses("re:layers[z-a]", "range out of order", "at byte 9 ");
  refuses("re:*", "quantifier does not follow", "at byte 0 ");
  refuses("re:((a{1,9999}){1,9999}){1,9999}", "too large", "at byte ");
  refuses(fmt::format("re:{:(<1000}", ""), "nested", "at byte ");
  expect_error<ValueError>([] { Pattern(fmt::format("re:{:a<100000}", "")); }, {"longer", "byte"});
  expect_error<ValueError>([] { Pattern("re:\xff\xfe"); }, {"\\xff", "UTF-8"});
}

TEST(Pattern, ReadsNamesGlobsAndExpressionsAsPython) {
  struct Case {
    const char *pattern, *name;
    bool matches;
  };
  for (const auto& [pattern, name, matches] : std::initializer_list<Case>{
           {"a.q_proj", "a.q_proj.weight", true},
           {"a.q_proj.weight", "a.q_proj.weight", true},
           {"a.q_proj", "a.q_proj.bias", false},
           {"q_proj", "a.q_proj.weight", false},
           {"model.layers.0.*", "model.layers.0.mlp.up_proj.weight", true},
           {"model.layers.1.*", "model.layers.10.mlp.up_proj.weight", false},
           {"*.w?", "a.w1.weight", true},
           {"*.w?", "a.w12.weight", false},
           {R"(re:.*layers\.[0-3]\..*)", "model.layers.2.mlp.w1.weight", true},
           {"re:layers", "model.layers.2.mlp.w1.weight", false},
           {"re:(?i).*Q_PROJ$", "model.q_proj.weight", true},
           {"re:(?!.*mlp).*_proj", "a.self_attn.q_proj", true},
           {"re:(?!.*mlp).*_proj", "a.mlp.up_proj", false},
           {"re:.*(?<!shared_)experts\\..*", "a.experts.0", true},
           {"re:.*(?<!shared_)experts\\..*", "a.shared_experts.0", false},
           {"re:^layers\\.(?P<n>\\d+)\\.(?P=n)\\Z", "layers.12.12", true},
           {"re:^layers\\.(?P<n>\\d+)\\.(?P=n)\\Z", "layers.12.13", false},
           {"re:\\u0061\\x62c", "abc", true},
           {"re:caf.\\w", "caf\u00e9\u00e9", true},  // characters, not bytes
           {"re:a.b", "a\nb", false},
           {"re:(?s)a.b", "a\nb", true},
           {"re:a", "a\n", false}})  // the whole name
    EXPECT_EQ(Pattern(pattern).matches(name), matches) << pattern << " on " << name;
}

TEST(Pattern, ExpressionsWithoutEndEndOrAreRefused) {
  const std::string name = fmt::format("{:a<64}!", "");
  for (const std::string text : {"(a+)+$", "(a|aa)+$", "(.*a)*[bc]", "([a-z]*)*[?%]"}) {
    EXPECT_FALSE(Pattern("re:" + text).matches(name)) << text;
    const std::string slow = "re:(?!x)" + text;
    expect_error<ValueError>([&] { Pattern(slow).matches(name); },
                             {slow, "'aaaa", "1000000 steps"});
  }
  const std::string endless(200'000, 'a');
  EXPECT_TRUE(Pattern("re:(?:a|b)*c?").matches(endless));
  expect_error<ValueError>([&] { Pattern("re:(?!x)(?:a|b)*c?").matches(endless); }, {"(?:a|b)*"});
  expect_error<ValueError>([] { Pattern("re:(?R)a").matches("b"); }, {"(?R)a", "'b'"});
  EXPECT_TRUE(Pattern("re:.*a").matches(endless));
}

/// Both libraries say the same, or only the one that Python is nearer to is asked.
TEST(Pattern, AmbiguousPatternsAreMatchedByOneLibrary) {
  using Extent = Expression::Extent;
  for (const char* text : {".*q_proj$", "model\\.layers\\.[0-3]\\..*", "(?i)lm_head", "a{2,3}"})
    EXPECT_TRUE(Expression(text, Extent::start).is_linear()) << text;
  for (const char* text : {"(?!.*mlp).*_proj", "(a)\\1", "\\x{41}", "a\\Z", "\\u0061", "a{1,2000}"})
    EXPECT_FALSE(Expression(text, Extent::start).is_linear()) << text;
  std::mt19937 random(5);
  const char* const parts[] = {"a", "b",   ".",   "[ab]", "[^a]", "(", ")", "|",     "*",  "+",
                               "?", "\\.", "\\d", "\\w",  "\\b",  "$", "^", "{1,2}", "(?:"};
  int linear = 0, matched = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text, name;
    for (std::size_t n = 1 + random() % 8; n > 0; --n) text += parts[random() % std::size(parts)];
    for (std::size_t n = random() % 6; n > 0; --n) name += "ab.1"[random() % 4];
    std::optional<Expression> fast, slow;
    const Extent extent = round % 2 == 0 ? Extent::whole : Extent::start;
    try {
      fast.emplace(text, extent);
      slow.emplace("(?!z)(?:" + text + ")", extent);
    } catch (const ValueError&) {
      continue;
    }
    linear += fast->is_linear();
    matched += fast->matches(name);
    EXPECT_EQ(fast->matches(name), slow->matches(name)) << text << " on " << name;
  }
  EXPECT_GT(linear, 1000);
  EXPECT_GT(matched, 500);
}

/// One by one, the first would take 2.5 * 10^11 comparisons.
TEST(Pattern, HostileGlobsTakeAsLongAsTheirTexts) {
  const std::string name(1'000'000, 'a');
  EXPECT_FALSE(Pattern(fmt::format("*{:a<500000}b*", "")).matches(name));
  EXPECT_TRUE(Pattern(fmt::format("*{:a<500000}*", "")).matches(name));
  std::string stars;
  for (int i = 0; i < 100'000; ++i) stars += "*a";
  EXPECT_FALSE(Pattern(stars + "b").matches(name));
  EXPECT_TRUE(Pattern(stars).matches(name));
  const auto few = std::make_shared<MatchBudget>(1'000'000);
  const std::string text = fmt::format("*{:a<500000}?b*", "");
  expect_error<ValueError>([&] { Pattern(text, few).matches(name); },
                           {"pattern: *aaaa", "takes more than what is left of 1000000 steps"});
}

/// The rule, by trying every length of the first star.
bool plainly(std::string_view glob, std::string_view name) {
  if (glob.empty()) return name.empty();
  if (glob[0] == '*')
    return plainly(glob.substr(1), name) || (!name.empty() && plainly(glob, name.substr(1)));
  return !name.empty() && (glob[0] == '?' || glob[0] == name[0]) &&
         plainly(glob.substr(1), name.substr(1));
}

TEST(Pattern, GlobsAreThoseOfTheRule) {
  std::mt19937 random(3);
  int matched = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string glob, name;
    for (std::size_t n = random() % 7; n > 0; --n) glob += "ab*?"[random() % 4];
    for (std::size_t n = random() % 7; n > 0; --n) name += "ab"[random() % 2];
    const bool expected = plainly(glob, name);
    ASSERT_EQ(glob_matches(glob, name), expected) << glob << " on " << name;
    matched += expected;
  }
  EXPECT_GT(matched, 5000);
}

TEST(Pattern, TheExpressionsOfAListShareTheirSteps) {
  const std::string name = fmt::format("{:a<15}!", "");  // some 100,000 steps each
  const auto few = std::make_shared<MatchBudget>(2'000'000);
  const std::vector<Pattern> patterns = {Pattern("re:(?!x)(a+)+$", few),
                                         Pattern("re:(?!y)(a+)+$", few)};
  EXPECT_FALSE(patterns[0].matches(name));
  expect_error<ValueError>(
      [&] {
        for (int i = 0; i < 1000; ++i)
          for (const Pattern& p : patterns) p.matches(name);
      },
      {"(a+)+$ takes more than what is left of 2000000 steps for all patterns of a run"});
  EXPECT_TRUE(Pattern("re:(?!x)a.*").matches(name)) << "another list has steps of its own";
}

/// The patterns are those of vendors.
TEST(Pattern, ListsWithLookaheadAreMatchedOnManyNames) {
  const PatternList patterns(
      {"re:^(?!.*(experts|mlp)).*$", "re:.*(?<!shared_)experts\\..*", "re:.*self_attn(?!.*kv_b).*"},
      std::make_shared<MatchBudget>());
  int matched = 0;
  for (int layer = 0; layer < 60; ++layer)
    for (int expert = 0; expert < 100; ++expert)
      matched += patterns
                     .matching("model.layers." + std::to_string(layer) + ".mlp.experts." +
                               std::to_string(expert) + ".down_proj.weight")
                     .size();
  EXPECT_EQ(matched, 6000);
}

TEST(PatternList, FindsWhatEachPatternMatches) {
  std::mt19937 random(11);
  const auto word = [&](const char* letters, std::size_t count, std::size_t least) {
    std::string text;
    for (std::size_t n = least + random() % 7; n > 0; --n) text += letters[random() % count];
    return random() % 4 == 0 ? text + ".weight" : text;
  };
  std::size_t matched = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> texts;
    for (std::size_t n = random() % 8; n > 0; --n) texts.push_back(word("ab.*?", 5, 1));
    if (round % 5 == 0) texts.emplace_back("re:a.*");
    const PatternList list(texts, std::make_shared<MatchBudget>());
    for (int i = 0; i < 10; ++i) {
      const std::string name = word("ab.", 3, 0);
      std::vector<std::size_t> expected;
      for (std::size_t p = 0; p < texts.size(); ++p)
        if (Pattern(texts[p]).matches(name)) expected.push_back(p);
      ASSERT_EQ(list.matching(name), expected) << name << " of " << ::testing::PrintToString(texts);
      matched += expected.size();
    }
  }
  EXPECT_GT(matched, 2000u);
}

/// One by one, these are ten million.
TEST(PatternList, ManyGlobsMeetManyNames) {
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) {
    const std::string number = std::to_string(i);
    texts.push_back(i % 2 == 0 ? "model.layers.*.experts." + number + ".w?"
                               : "*.experts." + number + ".*.weight");
  }
  const auto budget = std::make_shared<MatchBudget>();
  const PatternList list(texts, budget);
  std::size_t matched = 0;
  for (int i = 0; i < 2000; ++i)
    matched += list.matching("model.layers.7.experts." + std::to_string(i) + ".w1.weight").size();
  EXPECT_EQ(matched, 2000u);
  EXPECT_LE(list.calls(), 2 * 2000);
  EXPECT_LE(MatchBudget::kSteps - budget->left(), 2000 * 400) << "some for each byte of a name";
}

/// One by one, these are two million.
TEST(PatternList, ManyExpressionsAreMatchedAtOnce) {
  std::vector<std::string> texts = {"re:^(?!.*mlp).*$", "*.x_proj"};
  for (int i = 0; i < 500; ++i)
    texts.push_back("re:.*layers\\." + std::to_string(i) + "\\.(mlp|self_attn)\\.x_proj");
  const PatternList list(texts, std::make_shared<MatchBudget>());
  std::size_t matched = 0;
  for (int i = 0; i < 2000; ++i)
    matched += list.matching("model.layers." + std::to_string(i) + ".mlp.x_proj.weight").size();
  EXPECT_EQ(matched, 2000u + 500) << "the glob, and the expression of the layer";
  EXPECT_LE(list.calls(), 2000 * (1 + 2 * (1 + 4))) << "a glob, one alone, four times 128";
}

TEST(PatternList, HostileGlobsSpendTheBudget) {
  std::vector<std::string> texts;
  for (int i = 1; i < 1000; ++i) texts.push_back(fmt::format("*{:a<{}}?b", "", i));
  const PatternList list(texts, std::make_shared<MatchBudget>(1'000'000));
  expect_error<ValueError>(
      [&] {
        for (int i = 0; i < 100; ++i) list.matching(fmt::format("{:a<1000}", ""));
      },
      {"a?b", "what is left of 1000000 steps for all patterns of a run"});
}

}  // namespace nvfp4::checkpoint::pattern_test
