#include "checkpoint/gguf/tokenizer/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "checkpoint/gguf/config.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

namespace fs = std::filesystem;
/// The reason why a tokenizer cannot be converted.
struct Unknown {
  std::string reason;
};

/// A pre-tokenizer, identified by its expressions, one a line, and by whether whole words skip the
/// merges. Vocabularies of tiktoken are the same either way: each of their words is a result of
/// merges.
struct PreTokenizer {
  std::string_view expression;
  std::optional<bool> ignores_merges;
  std::string_view architecture;  ///< the start of its name
  std::string_view name;
};

/// The expression of "ByteLevel" alone.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// The expressions of "Digits" and "ByteLevel".
constexpr std::string_view kDigitsGpt2 =
    R"(\p{N}
's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"(\p{N}{1,3}
[一-龥぀-ゟ゠-ヿ]+
[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The first row that fits counts.
constexpr PreTokenizer kPreTokenizers[] = {
    {kLlama3, true, "glm", "glm4"},
    {kLlama3, true, "nemotron_h", "pixtral"},
    {kLlama3, true, "", "llama-bpe"},
    {kLlama3, false, "", "dbrx"},
    {kQwen2, false, "hunyuan-moe", "hunyuan"},
    {kQwen2, false, "", "qwen2"},
    {kQwen35, false, "", "qwen35"},
    {kGpt4o, {}, "minimax-m2", "minimax-m2"},
    {kGpt4o, {}, "", "gpt-4o"},
    {kTekken, {}, "", "tekken"},
    {kDeepSeek3, false, "hunyuan-dense", "hunyuan-dense"},
    {kDeepSeek3, false, "", "deepseek-v3"},
    {kDigitsGpt2, false, "granite", "refact"},
    {kDigitsGpt2, false, "", "smollm"},
    {kGpt2, false, "", "gpt-2"},
};

/// Limit of rows that pad a vocabulary to a round number. Models have some hundreds.
constexpr std::int64_t kMaxPadding = 1 << 16;
/// The scores that llama.cpp's converter gives to tokens without one, and to padding.
constexpr double kNoScore = -1000, kPadScore = -10000;

Tree read_json(const fs::path& path) {
  checkpoint::ModelLinks(path.parent_path()).require_inside(path);
  if (!fs::exists(path)) return nullptr;
  Tree json = checkpoint::parse_json_or_null<Tree>(checkpoint::read_model_text(path));
  if (!json.is_object()) throw Unknown{path.filename().string() + " is no JSON object"};
  return json;
}

template <class J>
bool flag_of(const J& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_boolean() && it->template get<bool>();
}

/// Returns the expressions of the steps before the bytes, one a line. Empty for other steps.
std::string expression_of(const Tree& tokenizer) {
  const Tree& pre = member_of(tokenizer, "pre_tokenizer");
  std::string expression;
  const Tree steps =
      text_of(pre, "type") == "Sequence" ? list_of(pre, "pretokenizers") : Tree::array({pre});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Tree& step = steps[i];
    const std::string type = text_of(step, "type");
    const bool is_last = i + 1 == steps.size();
    if (is_last != (type == "ByteLevel") || (is_last && flag_of(step, "add_prefix_space")))
      return {};
    std::string own;
    if (type == "Digits" && flag_of(step, "individual_digits"))
      own = R"(\p{N})";
    else if (type == "Split")
      own = text_of(member_of(step, "pattern"), "Regex");
    else if (is_last && member_of(step, "use_regex") == false)  // without the member it is true
      break;
    else if (is_last)
      own = kGpt2;
    if (own.empty()) return {};
    if (!expression.empty()) expression += '\n';
    for (const char c : own) {  // DeepSeek's file has the characters instead of escapes
      if (c == '\r' || c == '\n')
        expression += c == '\r' ? "\\r" : "\\n";
      else
        expression += c;
    }
  }
  return expression;
}

/// Reports whether an added token looks as if it controls the model.
bool looks_special(std::string_view token) {
  constexpr std::string_view kPairs[][2] = {{"<|", "|>"}, {"<｜", "｜>"}, {"<unused", ">"}};
  return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" ||
         std::ranges::any_of(kPairs, [&](const auto& pair) {
           return token.starts_with(pair[0]) && token.ends_with(pair[1]);
         });
}

/// Replaces each `from` by `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

class Converter {
 public:
  Converter(const fs::path& folder, const Json& config, const Architecture& architecture)
      : folder_(folder), config_(config), architecture_(architecture) {}

  std::vector<NewEntry> run() {
    const Tree tokenizer = read_json(folder_ / "tokenizer.json");
    const Tree side = read_json(folder_ / "tokenizer_config.json");
    const Tree& model = member_of(tokenizer, "model");
    const bool merges = text_of(model, "type") == "BPE";
    const bool falls_back = merges && flag_of(model, "byte_fallback");
    const fs::path pieces = folder_ / "tokenizer.model";
    const bool is_gemma4 = architecture_.name == "gemma4";
    if (merges && falls_back == is_gemma4) {
      const std::string_view pre = is_gemma4 ? "" : pre_tokenizer(tokenizer, model);
      read_vocabulary(tokenizer, model);
      add_tokens(is_gemma4 ? "gemma4" : "gpt2", pre);
      add("merges", new_strings(merges_of(model)));
    } else if (fs::exists(pieces) && !is_gemma4) {
      read_pieces(pieces, tokenizer, side);
      add_tokens("llama", "default");
    } else if (falls_back) {
      read_vocabulary(tokenizer, model);
      score_by_merges(model);
      add_tokens("llama", "default");
    } else {
      throw Unknown{tokenizer.is_null() ? "there is no tokenizer.json"
                                        : "tokenizer.json is no BPE that llama.cpp has"};
    }
    std::vector<NewEntry> special =
        special_tokens(tokenizer, side, folder_, config_, architecture_, tokens_.size());
    std::ranges::move(special, std::back_inserter(entries_));
    return std::move(entries_);
  }

 private:
  void add(const std::string& key, NewValue value) {
    entries_.push_back({"tokenizer.ggml." + key, std::move(value)});
  }

  void add_tokens(const char* model, std::string_view pre) {
    add("model", new_text(model));
    if (!pre.empty()) add("pre", new_text(std::string(pre)));
    add("tokens", new_strings(tokens_));
    if (!scores_.empty())
      add("scores", {.type = ValueType::array, .element = ValueType::f32, .reals = scores_});
    add("token_type", new_i32s(types_));
  }

  std::string_view pre_tokenizer(const Tree& tokenizer, const Tree& model) const {
    const std::string expression = expression_of(tokenizer);
    const bool ignores_merges = flag_of(model, "ignore_merges");
    for (const PreTokenizer& known : kPreTokenizers)
      if (known.expression == expression &&
          known.ignores_merges.value_or(ignores_merges) == ignores_merges &&
          architecture_.name.starts_with(known.architecture))
        return known.name;
    throw Unknown{"llama.cpp has no name for its pre-tokenizer, or none that is known here"};
  }

  /// Makes room for the tokens of the model, of which `known` have texts.
  void make_room(std::size_t known) {
    const std::int64_t count =
        integer_of(config_, {"vocab_size"}, static_cast<std::int64_t>(known));
    if (count <= 0) throw Unknown{fmt::format("vocab_size = {}", count)};
    if (count > kMaxPadding && count - kMaxPadding > static_cast<std::int64_t>(known))
      throw Unknown{fmt::format("vocab_size = {}, and there are {} tokens", count, known)};
    for (std::int64_t i = 0; i < count; ++i) tokens_.push_back(fmt::format("[PAD{}]", i));
    types_.assign(tokens_.size(), kUnused);
  }

  /// Reads the vocabulary of tokenizer.json. With fallback to bytes, tokens have scores.
  void read_vocabulary(const Tree& tokenizer, const Tree& model) {
    const bool falls_back = flag_of(model, "byte_fallback");
    const Tree& vocabulary = member_of(model, "vocab");
    if (!vocabulary.is_object()) throw Unknown{"tokenizer.json has no vocabulary"};
    const Tree& added_tokens = list_of(tokenizer, "added_tokens");
    make_room(vocabulary.size() + added_tokens.size());
    if (falls_back) scores_.assign(tokens_.size(), kPadScore);
    for (const auto& [token, id] : vocabulary.items())
      set(token, id, falls_back && is_byte(token) ? kByte : kNormal);
    for (const Tree& added : added_tokens) {
      if (!added.is_object()) continue;
      const std::string token = text_of(added, "content");
      const Tree& id = member_of(added, "id");
      const bool special = flag_of(added, "special");
      if (!falls_back && (special || looks_special(token)))
        set(token, id, kControl);
      else if (!falls_back)
        set(replaced(token, "▁", " "), id, kUserDefined);
      else
        set(token, id,
            is_shown(token)              ? kUserDefined
            : special                    ? kControl
            : vocabulary.contains(token) ? kNormal
                                         : kUserDefined);
    }
  }

  /// Gives tokens the negative rank of their merge, as SentencePiece scores them. llama.cpp merges
  /// by scores, and its converter's equal ones give other tokens.
  void score_by_merges(const Tree& model) {
    const Tree& vocabulary = member_of(model, "vocab");
    double rank = 0;
    for (std::string merge : merges_of(model)) {
      merge.erase(std::min(merge.find(' '), merge.size()), 1);
      const auto id = vocabulary.find(merge);
      if (id != vocabulary.end() && scores_[id->get<std::size_t>()] == kNoScore)
        scores_[id->get<std::size_t>()] = -rank;
      ++rank;
    }
  }

  /// Reads tokenizer.model, and the tokens that files beside it add.
  void read_pieces(const fs::path& path, const Tree& tokenizer, const Tree& side) {
    checkpoint::ModelLinks(folder_).require_inside(path);
    const std::vector<Piece> pieces = read_sentencepiece(checkpoint::read_model_text(path));
    if (pieces.empty()) throw Unknown{"tokenizer.model is no SentencePiece model with merges"};
    make_room(pieces.size());
    scores_.assign(tokens_.size(), kPadScore);
    for (std::size_t i = 0; i < std::min(pieces.size(), tokens_.size()); ++i) {
      tokens_[i] = pieces[i].text;
      scores_[i] = pieces[i].score;
      types_[i] = pieces[i].type == kUserDefined ? kNormal : pieces[i].type;
    }
    const bool is_phi = architecture_.name == "phi3";
    const Tree added = read_json(folder_ / "added_tokens.json");
    for (const auto& [token, id] : added.items()) set_if_inside(token, id, kUserDefined);
    const auto set_described = [&](const Tree& id, const Tree& token) {
      const std::string text = text_of(token, "content");
      const bool special = token.is_object() && flag_of(token, "special");
      if (is_phi || special || looks_special(text))
        set_if_inside(text, id, special || !is_phi ? kControl : kUserDefined);
      else
        set_if_inside(replaced(text, "▁", " "), id, kUserDefined);
    };
    if (const Tree& described = member_of(side, "added_tokens_decoder"); described.is_object())
      for (const auto& [id, token] : described.items())
        set_described(checkpoint::parse_json_or_null<Tree>(id), token);
    if (is_phi)
      for (const Tree& token : list_of(tokenizer, "added_tokens"))
        set_described(member_of(token, "id"), token);
  }

  static bool is_byte(std::string_view token) {
    return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
           std::isxdigit(static_cast<unsigned char>(token[3])) != 0 &&
           std::isxdigit(static_cast<unsigned char>(token[4])) != 0;
  }

  /// Reports whether llama.cpp shows a token of Gemma 4, so that its parser of chats can read it.
  bool is_shown(std::string_view token) const {
    constexpr std::string_view kShown[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                           "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                           "<|\"|>"};
    return architecture_.name == "gemma4" && std::ranges::find(kShown, token) != std::end(kShown);
  }

  void set(const std::string& token, const Tree& id, TokenType type) {
    if (!set_if_inside(token, id, type))
      throw Unknown{fmt::format("token '{}' has no number below vocab_size", printable(token, 64))};
  }

  bool set_if_inside(const std::string& token, const Tree& id, TokenType type) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tokens_.size()) return false;
    const auto at = id.get<std::size_t>();
    tokens_[at] = token;
    types_[at] = type;
    if (!scores_.empty()) scores_[at] = kNoScore;
    return true;
  }

  static std::vector<std::string> merges_of(const Tree& model) {
    std::vector<std::string> merges;
    for (const Tree& merge : list_of(model, "merges")) {
      if (merge.is_string()) {
        merges.push_back(merge.get<std::string>());
        continue;
      }
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
        throw Unknown{"tokenizer.json has a merge that is no pair"};
      const auto part = [&](int i) { return replaced(merge[i].get<std::string>(), " ", "Ġ"); };
      merges.push_back(fmt::format("{} {}", part(0), part(1)));
    }
    if (merges.empty()) throw Unknown{"tokenizer.json has no merges"};
    return merges;
  }

  const fs::path& folder_;
  const Json& config_;
  const Architecture& architecture_;
  std::vector<std::string> tokens_;
  std::vector<double> scores_;  ///< empty for byte-level vocabularies
  std::vector<std::int64_t> types_;
  std::vector<NewEntry> entries_;
};

}  // namespace

Tokenizer read_tokenizer(const fs::path& folder, const Json& config,
                         const Architecture& architecture) {
  Tokenizer out;
  try {
    out.entries = Converter(folder, config, architecture).run();
  } catch (const Unknown& unknown) {
    out.missing = fmt::format(
        "the file has no tokenizer, since {}: llama.cpp will not load it until "
        "gguf_new_metadata.py or its own converter (--vocab-only) adds one",
        unknown.reason);
  }
  return out;
}

}  // namespace nvfp4::gguf
