#include <gtest/gtest.h>

#include "checkpoint/base/option_values.h"

namespace nvfp4::shell_word_test {

TEST(ShellWord, IsBareWhereAShellReadsItSo) {
  EXPECT_EQ(shell_word("model-nvfp4/a_b.c@1%+=:,2"), "model-nvfp4/a_b.c@1%+=:,2");
}

TEST(ShellWord, IsQuotedWhereNeeded) {
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my model"), "'my model'");
  EXPECT_EQ(shell_word("*.o_proj"), "'*.o_proj'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a\\b"), "'a\\b'");
  EXPECT_EQ(shell_word("modèle"), "'modèle'");
}

TEST(ShellWord, HasEscapesForWhatCouldDisturbATerminal) {
  EXPECT_EQ(shell_word("a\x1b[1m"), "$'a\\x1b[1m'");
  EXPECT_EQ(shell_word("it's\n\\"), "$'it\\'s\\x0a\\\\'");
  EXPECT_EQ(shell_word("\xff"), "$'\\xff'");
}

TEST(ShellWord, IsWholeWhateverItsLength) {
  const std::string text(1000, 'a');
  EXPECT_EQ(shell_word(text + ' '), "'" + text + " '");
}

}  // namespace nvfp4::shell_word_test
