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

}  // namespace
}  // namespace nvfp4::checkpoint
