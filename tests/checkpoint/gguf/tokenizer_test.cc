#include "checkpoint/gguf/tokenizer/tokenizer.h"

#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/gguf/names.h"
#include "testing.h"

namespace nvfp4::gguf::tokenizer_test {

using namespace std::string_view_literals;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json tokenizer_json(const char* expression, bool ignore_merges) {
  return {{"added_tokens",
           {{{"id", 4}, {"content", "<|begin_of_text|>"}, {"special", true}},
            {{"id", 5}, {"content", "<tool>"}, {"special", false}}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", ignore_merges},
            {"byte_fallback", false},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}},
            {"merges", {"a b"}}}}};
}

class GgufTokenizer : public ::testing::Test {
 protected:
  Tokenizer read() { return read_tokenizer(dir.path(), config, *find_architecture("llama")); }
  void left_out(const Json& tokenizer, std::string_view why) {
    write_json(dir / "tokenizer.json", tokenizer);
    const Tokenizer t = read();
    EXPECT_TRUE(t.entries.empty());
    EXPECT_THAT(t.missing, HasSubstr(why));
  }
  NewValue value_of(const Tokenizer& tokenizer, std::string_view key) {
    const auto it = std::ranges::find(tokenizer.entries, key, &NewEntry::key);
    return it == tokenizer.entries.end() ? new_text("nothing") : it->value;
  }
  TempDir dir;
  Json config = Json::parse(R"({"vocab_size": 7, "eos_token_id": [5, 4]})");
};

TEST_F(GgufTokenizer, FirstOfSeveralEndsIsWritten) {
  write_json(dir / "tokenizer.json", tokenizer_json(kLlama3, true));
  const Tokenizer t = read();
  EXPECT_EQ(t.missing, "");
  EXPECT_EQ(std::get<std::uint64_t>(value_of(t, "tokenizer.ggml.eos_token_id").value), 5u);
  EXPECT_EQ(value_of(t, "tokenizer.ggml.tokens").strings.back(), "[PAD6]");
}

/// A guess would give other tokens without a word.
TEST_F(GgufTokenizer, UnknownKindsAreLeftOut) {
  EXPECT_THAT(read().missing, HasSubstr("there is no tokenizer.json"));
  left_out({{"version", "1.0"}}, "is no BPE that llama.cpp has");
  left_out(Json::array(), "is no JSON object");
  left_out(tokenizer_json("\\s+", true), "no name for its pre-tokenizer");
  left_out(tokenizer_json(kQwen, true), "no name for its pre-tokenizer");
  struct Row {
    const char *pointer, *value, *why;
  };
  constexpr Row kRows[] = {
      {"/model/type", R"("Unigram")", "is no BPE"},
      {"/model/vocab", "[]", "has no vocabulary"},
      {"/model/merges", "[]", "no merges"},
      {"/model/merges", "[1]", "no pair"},
      {"/model/merges", R"([["a", 1]])", "no pair"},
      {"/model/vocab/c", "7", "token 'c' has no number below vocab_size"},
      {"/model/vocab/c", "-1", "token 'c' has no number"},
      {"/model/vocab/c", R"("x")", "token 'c' has no number"},
      {"/model/vocab/c", "null", "token 'c' has no number"},
      {"/added_tokens/0/id", "null", "'<|begin_of_text|>' has no number"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", "true", "no name for"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", "true", "no name for"},
      {"/pre_tokenizer/pretokenizers/1", R"({"type": "ByteLevel"})", "no name for"},
      {"/pre_tokenizer/pretokenizers/1/type", R"("Split")", "no name for"},
      {"/pre_tokenizer/pretokenizers/0/type", R"("ByteLevel")", "no name for"},
      {"/pre_tokenizer/pretokenizers/0/pattern", R"({"String": " "})", "no name for"},
      {"/pre_tokenizer", "null", "no name for"},
  };
  for (const Row& row : kRows) {
    Json json = tokenizer_json(kLlama3, true);
    json[Json::json_pointer(row.pointer)] = Json::parse(row.value);
    SCOPED_TRACE(row.pointer);
    left_out(json, row.why);
  }
  config["vocab_size"] = 0;
  left_out(tokenizer_json(kLlama3, true), "vocab_size = 0");
  config["vocab_size"] = 1 << 20;
  left_out(tokenizer_json(kLlama3, true), "vocab_size = 1048576, and there are 5 tokens");
}

TEST_F(GgufTokenizer, BytesAloneSplitByGptTwosExpression) {
  constexpr const char* kGpt2 = R"({"type": "ByteLevel")";
  Json json = tokenizer_json(kLlama3, false);
  for (const char* end : {"}", R"(, "use_regex": true})"}) {
    json["pre_tokenizer"] = Json::parse(std::string(kGpt2) + end);
    write_json(dir / "tokenizer.json", json);
    EXPECT_EQ(std::get<std::string>(value_of(read(), "tokenizer.ggml.pre").value), "gpt-2");
  }
  for (const char* end : {R"(, "use_regex": false})", R"(, "add_prefix_space": true})"}) {
    json["pre_tokenizer"] = Json::parse(std::string(kGpt2) + end);
    left_out(json, "no name for its pre-tokenizer");
  }
}

/// gguf-py writes them so.
TEST_F(GgufTokenizer, SpacesInMergesAreEscaped) {
  Json json = tokenizer_json(kLlama3, true);
  json["model"]["merges"] = Json::parse(R"([["a ", "b"], ["  ", "c d"]])");
  write_json(dir / "tokenizer.json", json);
  EXPECT_EQ(value_of(read(), "tokenizer.ggml.merges").strings,
            (std::vector<std::string>{"aĠ b", "ĠĠ cĠd"}));
}

/// Two pieces, and the settings of the training: the model merges pairs.
constexpr std::string_view kPieces =
    "\x0A\x0A\x0A\x01"
    "a"
    "\x15\x00\x00\x80\xBF\x18\x01"
    "\x0A\x03\x0A\x01"
    "b"
    "\x12\x02\x18\x02"sv;

TEST_F(GgufTokenizer, PiecesAreReadAndCheckedToTheirEnd) {
  write_text(dir / "tokenizer.model", std::string(kPieces));
  const Tokenizer t = read();
  EXPECT_EQ(t.missing, "");
  EXPECT_EQ(value_of(t, "tokenizer.ggml.scores").reals,
            (std::vector<double>{-1, 0, -10000, -10000, -10000, -10000, -10000}));
  for (std::size_t size = 0; size < kPieces.size(); ++size) {
    EXPECT_TRUE(read_sentencepiece(kPieces.substr(0, size)).empty()) << size;
    for (const char byte : {'\0', '\x7F', '\xFF'}) {
      std::string changed(kPieces);
      changed[size] = byte;
      EXPECT_LE(read_sentencepiece(changed).size(), 2u) << size;
    }
  }
  std::string unigram(kPieces);
  unigram.back() = '\1';
  write_text(dir / "tokenizer.model", unigram);
  EXPECT_THAT(read().missing, HasSubstr("no SentencePiece model with merges"));
}

}  // namespace nvfp4::gguf::tokenizer_test
