#include "checkpoint/io/yaml.h"

#include "testing.h"

namespace nvfp4::checkpoint::yaml_test {

constexpr std::size_t kMegabyte = 1 << 20;

YamlNode parse(std::string_view text) { return parse_yaml(text, "file", kMegabyte); }

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() + part.size() <= bytes) text += part;
  return text;
}

TEST(Yaml, NodesHaveTheirLines) {
  const YamlNode top = parse("a: [1, 'b c']\nd:\n  - &x e: ~\n  - *x\n");
  ASSERT_EQ(top.kind, YamlNode::Kind::map);
  ASSERT_EQ(top.keys.size(), 2u);
  EXPECT_EQ(top.keys[1].text, "d");
  EXPECT_EQ(top.keys[1].line, 2);
  EXPECT_EQ(top.items[0].items[1].text, "b c");
  EXPECT_TRUE(top.items[0].items[1].quoted);
  EXPECT_EQ(top.items[1].items[0].line, 3);
  EXPECT_EQ(top.items[1].items[1].kind, YamlNode::Kind::alias);
  EXPECT_EQ(parse("").kind, YamlNode::Kind::null);
}

TEST(Yaml, NamesTheLineOfWhatIsWrong) {
  expect_error<FormatError>([] { parse("a: 1\nb: [1\n"); }, {"file:3: "});
  expect_error<FormatError>([] { parse("a: 1\nb: 2\na: 3\n"); }, {"file:3: a is there twice"});
  expect_error<FormatError>([] { parse("a: 1\n[b]: 2\n"); }, {"file:2: ", "not a word"});
  expect_error<FormatError>([] { parse("a: 1\n---\nb: 2\n"); }, {"file: a second document"});
  expect_error<FormatError>([] { parse("a: \xff\n"); }, {"file: not UTF-8"});
  expect_error<FormatError>([] { parse(std::string_view("a: \0", 4)); }, {"file: not UTF-8"});
  expect_error<FormatError>([] { parse(repeated("a", kMegabyte + 1)); },
                            {"1048577 bytes, at most 1048576"});
}

TEST(Yaml, DeepTextsAreRefusedAndAliasesNotExpanded) {
  EXPECT_NO_THROW(parse(repeated("[", 32) + repeated("]", 32)));
  expect_error<FormatError>([] { parse(repeated("[", 33) + repeated("]", 33)); },
                            {"file:1: nested more than 32 deep"});
  for (const char* part : {"[", "{", "- ", "? ", "{a: ", "[[", "- ? "})
    EXPECT_THROW(parse(repeated(part, kMegabyte)), FormatError) << part;
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 1000; ++i) bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  EXPECT_EQ(parse(bomb).items.size(), 1000u);
}

TEST(Yaml, AnyTextIsATreeOrAnError) {
  std::mt19937 random(7);
  constexpr std::string_view kParts[] = {
      "[",    "]",  "{",    "}",   "- ",          "? ",         ": ",
      ":",    "a",  "b: ",  "&a ", "*a",          "!a ",        "!<x>",
      "!!",   "'",  "\"",   "|",   "|2\n",        ">-\n",       "\n",
      "\n  ", "#c", "---",  "...", "%YAML 1.1\n", "%TAG ! x\n", ",",
      "\t",   "~",  "null", "\\",  "\r\n",        "\xc3\xa9",   "\xef\xbb\xbf",
      "<<: ", "0x1"};
  int trees = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto n = random() % 25; n > 0; --n) text += kParts[random() % std::size(kParts)];
    try {
      parse(text);
      ++trees;
    } catch (const FormatError&) {
    }
  }
  EXPECT_GT(trees, 1000);
}

}  // namespace nvfp4::checkpoint::yaml_test
