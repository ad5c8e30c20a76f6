// The table of commands and options.
#include "nvfp4/commands.h"

#include <gtest/gtest.h>

#include <set>

#include "nvfp4/error.h"

namespace nvfp4::commands_test {
namespace {

TEST(Commands, NamesKeywordsAndTextsAreThereOnce) {
  std::set<std::string> commands_seen;
  for (const Command& c : commands()) {
    EXPECT_TRUE(commands_seen.insert(c.name).second) << c.name;
    EXPECT_FALSE(c.summary.empty()) << c.name;
    std::set<std::string> names, keywords;
    bool options_began = false;
    for (const CommandOption& o : c.options) {
      EXPECT_TRUE(names.insert(o.names).second) << c.name << o.names;
      EXPECT_TRUE(o.keyword.empty() || keywords.insert(o.keyword).second) << c.name << o.names;
      EXPECT_FALSE(o.text.empty()) << o.names;
      EXPECT_FALSE(o.text.ends_with('.')) << o.names;
      EXPECT_TRUE(o.required || !o.is_argument()) << o.names;
      EXPECT_FALSE(o.is_argument() && options_began) << o.names << " comes after an option";
      options_began |= !o.is_argument();
      EXPECT_EQ(c.find(o.names.substr(o.names.find(',') + 1)), &o);  // by its last name, too
    }
  }
  EXPECT_THROW(command("calibrate"), ValueError);
  EXPECT_EQ(command("quantize").find("--nothing"), nullptr);
}

TEST(Commands, KeywordsAreTheNamesOfTheOptions) {
  for (const Command& c : commands())
    for (const CommandOption& o : c.options) {
      if (o.keyword.empty() || o.names == "--for" || o.names == "--no-histogram") continue;
      std::string name = o.names.substr(0, o.names.find(','));
      name.erase(0, name.find_first_not_of('-'));
      for (char& letter : name)
        letter = letter == '-' ? '_' : static_cast<char>(std::tolower(letter));
      EXPECT_EQ(o.keyword, name);
    }
}

}  // namespace
}  // namespace nvfp4::commands_test
