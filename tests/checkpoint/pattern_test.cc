#include "checkpoint/pattern.h"

#include <gtest/gtest.h>

#include "checkpoint/expect_error.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

TEST(Pattern, MatchesTheTensorOrTheModule) {
  EXPECT_TRUE(Pattern("a.q_proj").matches("a.q_proj.weight"));
  EXPECT_TRUE(Pattern("a.q_proj.weight").matches("a.q_proj.weight"));
  EXPECT_FALSE(Pattern("a.q_proj").matches("a.q_proj.bias"));
  EXPECT_FALSE(Pattern("q_proj").matches("a.q_proj.weight"));
}

TEST(Pattern, GlobSpansDotsAndAnchorsBothEnds) {
  EXPECT_TRUE(Pattern("model.layers.0.*").matches("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(Pattern("model.layers.1.*").matches("model.layers.10.mlp.up_proj.weight"));
  EXPECT_TRUE(Pattern("*.w?").matches("a.w1.weight"));
  EXPECT_FALSE(Pattern("*.w?").matches("a.w12.weight"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbbYc"));
  EXPECT_FALSE(glob_matches("a*b*c", "aXbbY"));
  EXPECT_TRUE(glob_matches("**", ""));
  EXPECT_FALSE(glob_matches("?", ""));
}

TEST(Pattern, RegularExpressionMatchesTheWholeName) {
  EXPECT_TRUE(Pattern(R"(re:.*layers\.[0-3]\..*)").matches("model.layers.2.mlp.w1.weight"));
  EXPECT_FALSE(Pattern("re:layers").matches("model.layers.2.mlp.w1.weight"));
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
  refuses("re:" + std::string(1000, '('), "nested", "at byte ");
  expect_error<ValueError>([] { Pattern("re:" + std::string(100'000, 'a')); }, {"longer", "byte"});
  expect_error<ValueError>([] { Pattern("re:\xff\xfe"); }, {"\\xff", "UTF-8"});
}

TEST(Pattern, ExpressionsMeanWhatPythonTakesThemFor) {
  const auto matches = [](const char* text, std::string_view name) {
    return Pattern(text).matches(name);
  };
  EXPECT_TRUE(matches("re:(?i).*Q_PROJ$", "model.q_proj.weight"));
  EXPECT_TRUE(matches("re:(?!.*mlp).*_proj", "a.self_attn.q_proj"));
  EXPECT_FALSE(matches("re:(?!.*mlp).*_proj", "a.mlp.up_proj"));
  EXPECT_TRUE(matches("re:.*(?<!shared_)experts\\..*", "a.experts.0"));
  EXPECT_FALSE(matches("re:.*(?<!shared_)experts\\..*", "a.shared_experts.0"));
  EXPECT_TRUE(matches("re:^layers\\.(?P<n>\\d+)\\.(?P=n)\\Z", "layers.12.12"));
  EXPECT_FALSE(matches("re:^layers\\.(?P<n>\\d+)\\.(?P=n)\\Z", "layers.12.13"));
  EXPECT_TRUE(matches("re:\\u0061\\x62c", "abc"));
  EXPECT_TRUE(matches("re:caf.\\w", "caf\u00e9\u00e9")) << "characters, not bytes";
  EXPECT_FALSE(matches("re:a.b", "a\nb"));
  EXPECT_TRUE(matches("re:(?s)a.b", "a\nb"));
  EXPECT_FALSE(matches("re:a", "a\n")) << "the whole name";
}

TEST(Pattern, ExpressionsWithoutEndAreRefused) {
  for (const char* text : {"re:(a+)+$", "re:(a|aa)+$", "re:(.*a)*[bc]", "re:([a-z]*)*[?%]"})
    expect_error<ValueError>([&] { Pattern(text).matches(std::string(64, 'a') + "!"); },
                             {text, "'aaaa", "1000000 steps"});
  const std::string endless(200'000, 'a');
  expect_error<ValueError>([&] { Pattern("re:(?:a|b)*c?").matches(endless); },
                           {"(?:a|b)*", "heap limit"});
  expect_error<ValueError>([] { Pattern("re:(?R)a").matches("b"); }, {"(?R)a", "'b'"});
  EXPECT_TRUE(Pattern("re:.*a").matches(endless));
}

}  // namespace
}  // namespace nvfp4::checkpoint
