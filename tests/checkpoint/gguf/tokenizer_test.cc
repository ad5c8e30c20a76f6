#include "checkpoint/gguf/tokenizer.h"

#include "checkpoint/gguf/gguf_models.h"
#include "testing.h"

namespace nvfp4::gguf::tokenizer_test {

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

std::map<std::string, NewValue> by_key(const Tokenizer& tokenizer) {
  std::map<std::string, NewValue> out;
  for (const NewEntry& e : tokenizer.entries) out[e.key] = e.value;
  return out;
}

class GgufTokenizer : public ::testing::Test {
 protected:
  Tokenizer read(const Json& tokenizer) {
    write_json(dir / "tokenizer.json", tokenizer);
    return read_tokenizer(dir.path(), config);
  }
  void left_out(const Json& tokenizer, std::string_view why) {
    const Tokenizer t = read(tokenizer);
    EXPECT_TRUE(t.entries.empty());
    EXPECT_THAT(t.missing, HasSubstr(why));
  }
  TempDir dir;
  Json config = Json::parse(R"({"vocab_size": 7, "eos_token_id": [5, 4]})");
};

TEST_F(GgufTokenizer, LlamaThree) {
  write_json(dir / "tokenizer_config.json", {{"bos_token", {{"content", "<|begin_of_text|>"}}},
                                             {"add_bos_token", true},
                                             {"chat_template", "{{ messages }}"}});
  const Tokenizer t = read(tokenizer_json(kLlama3, true));
  EXPECT_EQ(t.missing, "");
  auto keys = by_key(t);
  EXPECT_EQ(std::get<std::string>(keys["tokenizer.ggml.model"].value), "gpt2");
  EXPECT_EQ(std::get<std::string>(keys["tokenizer.ggml.pre"].value), "llama-bpe");
  EXPECT_EQ(keys["tokenizer.ggml.tokens"].strings,
            (std::vector<std::string>{"a", "b", "ab", "[PAD3]", "<|begin_of_text|>", "<tool>",
                                      "[PAD6]"}));
  EXPECT_EQ(keys["tokenizer.ggml.token_type"].numbers,
            (std::vector<std::int64_t>{1, 1, 1, 5, 3, 4, 5}));
  EXPECT_EQ(keys["tokenizer.ggml.merges"].strings, std::vector<std::string>{"a b"});
  EXPECT_EQ(std::get<std::uint64_t>(keys["tokenizer.ggml.bos_token_id"].value), 4u);
  EXPECT_EQ(std::get<std::uint64_t>(keys["tokenizer.ggml.eos_token_id"].value), 5u)
      << "by its number in config.json";
  EXPECT_TRUE(std::get<bool>(keys["tokenizer.ggml.add_bos_token"].value));
  EXPECT_EQ(std::get<std::string>(keys["tokenizer.chat_template"].value), "{{ messages }}");
}

TEST_F(GgufTokenizer, QwenAndMergesThatArePairs) {
  Json json = tokenizer_json(kQwen, false);
  json["model"]["merges"] = Json::parse(R"([["a", "b"]])");
  auto keys = by_key(read(json));
  EXPECT_EQ(std::get<std::string>(keys["tokenizer.ggml.pre"].value), "qwen2");
  EXPECT_EQ(keys["tokenizer.ggml.merges"].strings, std::vector<std::string>{"a b"});
}

TEST_F(GgufTokenizer, GptTwoHasItsOwnSplitExpression) {
  Json json = tokenizer_json("", false);
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(std::get<std::string>(by_key(read(json))["tokenizer.ggml.pre"].value), "gpt-2");
  for (const char* flag : {"add_prefix_space", "use_regex"}) {
    Json other = json;
    other["pre_tokenizer"][flag] = !other["pre_tokenizer"][flag].get<bool>();
    left_out(other, "not that of");
  }
}

/// A guess would give other tokens without a word.
TEST_F(GgufTokenizer, WhatIsNotKnownIsLeftOut) {
  EXPECT_THAT(read_tokenizer(dir.path(), config).missing, HasSubstr("there is no tokenizer.json"));
  left_out({{"version", "1.0"}}, "is no byte-level BPE");
  left_out(Json::array(), "is no JSON object");
  left_out(tokenizer_json("\\s+", true), "not that of Llama 3, Qwen or GPT-2");
  left_out(tokenizer_json(kLlama3, false), "not that of Llama 3, Qwen or GPT-2");
  left_out(tokenizer_json(kQwen, true), "not that of Llama 3, Qwen or GPT-2");
  Json json = tokenizer_json(kLlama3, true);
  json["model"]["type"] = "Unigram";
  left_out(json, "is no byte-level BPE");
  json = tokenizer_json(kLlama3, true);
  json["model"]["byte_fallback"] = true;
  left_out(json, "is no byte-level BPE");
  json = tokenizer_json(kLlama3, true);
  json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  left_out(json, "not that of");
  json = tokenizer_json(kLlama3, true);
  json["model"]["merges"] = Json::parse(R"([["a ", "b"]])");
  left_out(json, "a merge with a space");
  json["model"]["merges"] = Json::array();
  left_out(json, "no merges");
  json["model"]["merges"] = Json::array({1});
  left_out(json, "no pair");
  for (const Json& id : {Json(7), Json(-1), Json("x"), Json()}) {
    json = tokenizer_json(kLlama3, true);
    json["model"]["vocab"]["c"] = id;
    left_out(json, "token 'c' has no number below vocab_size");
  }
  config.erase("vocab_size");
  left_out(tokenizer_json(kLlama3, true), "no vocab_size");
}

}  // namespace nvfp4::gguf::tokenizer_test
