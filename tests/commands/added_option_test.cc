// An option is one row: every text and record follows from it.
#include <gmock/gmock.h>

#include "../cli/commands.h"
#include "commands/make_command.h"
#include "nvfp4/error.h"
#include "testing.h"

namespace nvfp4::added_option_test {
namespace {

using testing::HasSubstr;

struct MoreOptions : QuantizeCheckpointOptions {
  double warmth = 0.5;
  bool glossy = false;
};

constexpr OptionRow<MoreOptions> kMore[] = {{.names = "--warmth",
                                             .member = &MoreOptions::warmth,
                                             .value = "W",
                                             .text = "how warm the values are",
                                             .effect = Effect::values,
                                             .most = 1,
                                             .former = "--temper,--hot 1"},
                                            {.names = "--glossy",
                                             .member = &MoreOptions::glossy,
                                             .text = "varnish the tensors",
                                             .effect = Effect::form}};

Command more_command() {
  return make_command<MoreOptions>(
      {.name = "paint", .function = "paint_checkpoint", .summary = "Paint a checkpoint"},
      kQuantizeOptions, kMore);
}

TEST(AddedOption, IsInHelpManualPageAndCompletions) {
  const Command command = more_command();
  EXPECT_THAT(cli::help_text(command), HasSubstr("--warmth W              how warm the values are; "
                                                 "0.5 if not given"));
  EXPECT_THAT(cli::man_page(command), HasSubstr("\\fB\\-\\-warmth\\fR \\fIW\\fR\nhow warm"));
  for (const auto& [shell, text] :
       {std::pair("bash", "--glossy"), {"zsh", "--warmth[how warm"}, {"fish", "-l warmth -r -d"}})
    EXPECT_THAT(cli::completions(shell, {&command, 1}), HasSubstr(text)) << shell;
}

TEST(AddedOption, SetsItsMemberFromWords) {
  const Command command = more_command();
  MoreOptions options;
  const auto set = [&](const char* name, const std::vector<std::string>& words) {
    command.find(name)->set(&options, words);
  };
  set("--warmth", {"0.75"});
  set("--glossy", {});
  EXPECT_EQ(options.warmth, 0.75);
  EXPECT_TRUE(options.glossy);
  for (const char* wrong : {"1.5", "-1", "warm", "", "nan"})
    expect_error<ValueError>([&] { set("--warmth", {wrong}); }, {wrong, "a number from 0 to 1"});
  EXPECT_EQ(command.place_of_former("--temper"), "--warmth");
  EXPECT_EQ(command.place_of_former("--hot"), "--warmth 1");
}

TEST(AddedOption, IsInJournalMetadataAndCard) {
  MoreOptions options;
  options.warmth = 0.75;
  options.glossy = true;
  Json metadata, journal;
  options::record(metadata, kMore, options, Effect::values, Json::object());
  options::record(journal, kMore, options, Effect::form, Json::object());
  EXPECT_EQ(metadata, Json::parse(R"({"warmth": 0.75})"));
  EXPECT_EQ(journal, Json::parse(R"({"warmth": 0.75, "glossy": true})"));
  EXPECT_EQ(options::words_of(kMore, journal), " --warmth 0.75 --glossy");
}

TEST(OptionValues, AreReadAndShown) {
  QuantizeCheckpointOptions options;
  const auto set = [&](std::string_view name, const std::vector<std::string>& words) {
    for (const auto& row : kQuantizeOptions)
      if (options::split(row.names).front() == name) {
        options::set(row, options, words);
        return options::value_of(row, options);
      }
    return Json();
  };
  struct Case {
    const char* name;
    std::vector<std::string> words;
    Json value;
  };
  const Case cases[] = {{"--scheme", {"w4a16"}, "w4a16"},
                        {"--method", {"gptq:2"}, "gptq:2"},
                        {"--ignore", {"a,b", "*c"}, {"a,b", "*c"}},
                        {"--statistics", {"some/where/stats"}, "stats"},
                        {"--bits", {"5"}, 5.0},
                        {"--size", {"2 kB"}, 2000},
                        {"--allow", {"drop", "broken-scales,drop"}, "drop,broken-scales"},
                        {"--keep-dtype", {}, true}};
  for (const Case& c : cases) EXPECT_EQ(set(c.name, c.words), c.value) << c.name;
  for (const auto& [name, wrong] : {std::pair("--scheme", "w8a8"),
                                    {"--format", "png"},
                                    {"--method", "gptq:x"},
                                    {"--ignore", "re:("},
                                    {"--fuse", "q_proj"},
                                    {"--bits", "4"},
                                    {"--size", "-1"},
                                    {"--allow", "drop,decode"},
                                    {"--recipe", ""}})
    EXPECT_THROW(set(name, {wrong}), ValueError) << name;
}

}  // namespace
}  // namespace nvfp4::added_option_test
