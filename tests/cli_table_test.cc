#include "../cli/terminal.h"
#include "testing.h"

/// Tables for terminals of any width.
namespace nvfp4::cli_table_test {

using cli::display_width, cli::shorten, cli::Table;

TEST(TableText, WideCharactersCountAsTwo) {
  EXPECT_EQ(display_width("model"), 5u);
  EXPECT_EQ(display_width("\x1b[1m模型\x1b[0m"), 4u);
  EXPECT_EQ(display_width("ｆ가🙂é"), 7u);
  EXPECT_EQ(display_width("\xff\x1b"), 1u);
  EXPECT_EQ(shorten("模型", 4), "模型");
  for (std::size_t width = 3; width < 12; ++width)
    EXPECT_LE(display_width(shorten("模a型模a型模a型", width)), width);
  Table table("lr", 0);
  table.add({"模型", "1"});
  table.add({"abcd", "22"});
  EXPECT_EQ(table.text(), "模型   1\nabcd  22\n");
}

TEST(TableText, NarrowTerminalsGetALastColumnOfLines) {
  Table table("ll", 0);
  table.add({"size", "one two three four"});
  table.add_line({"to", "a b c d e f g h i j k l m"});
  EXPECT_EQ(table.text(18), "size  one two\n      three four\nto    a b c d e f g h i j k l m\n");
}

TEST(TableText, NarrowTerminalsGetShorterNames) {
  Table table("sr");
  table.title({"name", "count"});
  table.add({"model.layers.0.self_attn.q_proj", "1"});
  const std::string text = table.text(30);
  EXPECT_EQ(display_width(text.substr(0, text.find('\n'))), 30u) << text;
  EXPECT_NE(text.find("attn.q_proj"), text.npos) << text;
}

TEST(TableText, NarrowestTerminalsGetAList) {
  Table table("srl");
  table.title({"name", "count", ""});
  table.add({"model.layers.0", "12", "kept as it is"});
  table.add({"b", "", ""});
  EXPECT_EQ(table.text(16), "  model.layers.0\n    count 12,\n    kept as it\n    is\n  b\n");
}

}  // namespace nvfp4::cli_table_test
