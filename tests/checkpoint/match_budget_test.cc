// One budget for the patterns of a run, wherever they come from.
#include "checkpoint/checkpoints.h"
#include "checkpoint/match/glob.h"
#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint::match_budget_test {

TEST(MatchBudget, IsOneForAllPatternsOfARun) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  write_text(dir / "amax.json", R"({"re:(?!x).*o_proj.*": 2688})");
  const ModelFolder model = open_model_folder(dir / "in");
  const auto plan = [&](const std::function<void(TransformOptions&)>& choose, std::int64_t steps) {
    TransformOptions options;
    options.input = dir / "in";
    options.output = dir / "out";
    options.format = "modelopt";
    options.chosen = method_from_text("max");
    options.match_budget = std::make_shared<MatchBudget>(steps);
    choose(options);
    make_plan(model, options);
    return steps - options.match_budget->left();
  };
  const auto ignore = [](TransformOptions& o) { o.ignore = {"re:(?!x).*nosuch.*"}; };
  const auto include = [](TransformOptions& o) { o.include = {"re:(?!y).*nosuch.*"}; };
  const auto amax = [&](TransformOptions& o) { o.input_amax = dir / "amax.json"; };
  const auto all = [&](TransformOptions& o) {
    ignore(o);
    include(o);
    amax(o);
  };
  const std::int64_t first = plan(ignore, MatchBudget::kSteps);
  const std::int64_t second = plan(include, MatchBudget::kSteps);
  const std::int64_t third = plan(amax, MatchBudget::kSteps);
  EXPECT_GT(std::min({first, second, third}), 0);
  const std::int64_t sum = first + second + third;
  EXPECT_EQ(plan(all, MatchBudget::kSteps), sum);
  EXPECT_NO_THROW(plan(all, sum));
  expect_error<ValueError>([&] { plan(all, sum - 1); },
                           {"amax.json: pattern: (?!x).*o_proj.* takes more than what is left of"});
}

}  // namespace nvfp4::checkpoint::match_budget_test
