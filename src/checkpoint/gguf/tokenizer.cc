#include "checkpoint/gguf/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "checkpoint/gguf/config.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/model_links.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

namespace fs = std::filesystem;
/// The JSON type for a vocabulary: it finds one of many keys by search.
using Tree = nlohmann::json;

/// The reason why a tokenizer cannot be converted.
struct Unknown {
  std::string reason;
};

/// A pre-tokenizer, identified by its expression and by whether whole words skip the merges.
struct PreTokenizer {
  std::string_view expression;
  bool ignores_merges;
  std::string_view name;
};

/// The expression of "ByteLevel" alone.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr PreTokenizer kPreTokenizers[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, "qwen2"},
    {kGpt2, false, "gpt-2"},
};

/// The kinds of tokens, with llama.cpp's numbers.
enum TokenType : std::int64_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// Limit of rows that pad a vocabulary to a round number. Models have some hundreds.
constexpr std::int64_t kMaxPadding = 1 << 16;

template <class J>
J read_json(const fs::path& path) {
  checkpoint::ModelLinks(path.parent_path()).require_inside(path);
  if (!fs::exists(path)) return nullptr;
  J json = checkpoint::parse_json_or_null<J>(checkpoint::read_model_text(path));
  if (!json.is_object()) throw Unknown{path.filename().string() + " is no JSON object"};
  return json;
}

template <class J>
std::string text_of(const J& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->template get<std::string>() : std::string();
}

template <class J>
bool flag_of(const J& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_boolean() && it->template get<bool>();
}

/// Returns the expression of a split before the bytes, as in Llama 3 and Qwen, or of GPT-2's bytes.
/// Empty for others.
std::string expression_of(const Tree& tokenizer) {
  const Tree& pre = tokenizer.value("pre_tokenizer", Tree());
  if (!pre.is_object()) return {};
  if (text_of(pre, "type") == "ByteLevel" && flag_of(pre, "use_regex") &&
      !flag_of(pre, "add_prefix_space"))
    return std::string(kGpt2);
  if (text_of(pre, "type") != "Sequence") return {};
  const Tree& steps = pre.value("pretokenizers", Tree());
  if (!steps.is_array() || steps.size() != 2) return {};
  if (!steps[0].is_object() || text_of(steps[0], "type") != "Split" || !steps[1].is_object() ||
      text_of(steps[1], "type") != "ByteLevel" || flag_of(steps[1], "add_prefix_space"))
    return {};
  const Tree& pattern = steps[0].value("pattern", Tree());
  return pattern.is_object() ? text_of(pattern, "Regex") : std::string();
}

class Converter {
 public:
  Converter(const fs::path& folder, const Json& config) : folder_(folder), config_(config) {}

  std::vector<NewEntry> run() {
    tokenizer_ = read_json<Tree>(folder_ / "tokenizer.json");
    if (tokenizer_.is_null()) throw Unknown{"there is no tokenizer.json"};
    const Tree& model = tokenizer_.value("model", Tree());
    if (!model.is_object() || text_of(model, "type") != "BPE" || flag_of(model, "byte_fallback"))
      throw Unknown{"tokenizer.json is no byte-level BPE"};
    const std::string_view pre = pre_tokenizer(model);
    read_tokens(model);
    add("model", new_text("gpt2"));
    add("pre", new_text(std::string(pre)));
    add("tokens", new_strings(tokens_));
    add("token_type", new_i32s(types_));
    add("merges", new_strings(merges_of(model)));
    add_special();
    return std::move(entries_);
  }

 private:
  void add(const std::string& key, NewValue value) {
    entries_.push_back({"tokenizer.ggml." + key, std::move(value)});
  }

  std::string_view pre_tokenizer(const Tree& model) const {
    const std::string expression = expression_of(tokenizer_);
    const bool ignores_merges = flag_of(model, "ignore_merges");
    for (const PreTokenizer& known : kPreTokenizers)
      if (known.expression == expression && known.ignores_merges == ignores_merges)
        return known.name;
    throw Unknown{"its pre-tokenizer is not that of Llama 3, Qwen or GPT-2"};
  }

  void read_tokens(const Tree& model) {
    const Tree& vocabulary = model.value("vocab", Tree());
    if (!vocabulary.is_object()) throw Unknown{"tokenizer.json has no vocabulary"};
    const std::int64_t count = integer_of(config_, {"vocab_size"}, 0);
    if (count <= 0) throw Unknown{"config.json has no vocab_size"};
    const Tree& added_tokens = tokenizer_.value("added_tokens", Tree::array());
    const auto known = static_cast<std::int64_t>(vocabulary.size() + added_tokens.size());
    if (count > kMaxPadding && count - kMaxPadding > known)
      throw Unknown{fmt::format("vocab_size = {}, and tokenizer.json has {} tokens", count, known)};
    for (std::int64_t i = 0; i < count; ++i) tokens_.push_back(fmt::format("[PAD{}]", i));
    types_.assign(static_cast<std::size_t>(count), kUnused);
    for (const auto& [token, id] : vocabulary.items()) set(token, id, kNormal);
    for (const Tree& added : added_tokens) {
      if (!added.is_object()) continue;
      const std::string token = text_of(added, "content");
      const bool control = flag_of(added, "special") ||
                           (token.starts_with("<|") && token.ends_with("|>")) || token == "<pad>";
      set(token, added.value("id", Tree()), control ? kControl : kUserDefined);
    }
  }

  void set(const std::string& token, const Tree& id, TokenType type) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tokens_.size())
      throw Unknown{fmt::format("token '{}' has no number below vocab_size", printable(token, 64))};
    const auto at = id.get<std::size_t>();
    tokens_[at] = token;
    types_[at] = type;
    ids_[token] = static_cast<std::int64_t>(at);
  }

  std::vector<std::string> merges_of(const Tree& model) const {
    std::vector<std::string> merges;
    const Tree& all = model.value("merges", Tree::array());
    for (const Tree& merge : all) {
      if (merge.is_string()) {
        merges.push_back(merge.get<std::string>());
        continue;
      }
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
        throw Unknown{"tokenizer.json has a merge that is no pair"};
      const auto left = merge[0].get<std::string>(), right = merge[1].get<std::string>();
      if ((left + right).find(' ') != std::string::npos)
        throw Unknown{"tokenizer.json has a merge with a space in it"};
      merges.push_back(fmt::format("{} {}", left, right));
    }
    if (merges.empty()) throw Unknown{"tokenizer.json has no merges"};
    return merges;
  }

  void add_special() {
    const Json side = read_json<Json>(folder_ / "tokenizer_config.json");
    const Json& names = side.is_object() ? side : config_;
    for (const auto& [name, key] :
         {std::pair{"bos", "bos_token_id"}, std::pair{"eos", "eos_token_id"},
          std::pair{"pad", "padding_token_id"}, std::pair{"unk", "unknown_token_id"}}) {
      const std::optional<std::int64_t> id = special(names, name);
      if (id) add(key, new_u32(static_cast<std::uint64_t>(*id)));
    }
    for (const char* key : {"add_bos_token", "add_eos_token"})
      if (const auto it = names.find(key); it != names.end() && it->is_boolean())
        add(key, new_bool(it->get<bool>()));
    std::string chat = side.is_object() ? text_of(side, "chat_template") : std::string();
    const fs::path file = folder_ / "chat_template.jinja";
    if (chat.empty() && fs::exists(file)) {
      checkpoint::ModelLinks(folder_).require_inside(file);
      chat = checkpoint::read_model_text(file);
    }
    if (!chat.empty()) entries_.push_back({"tokenizer.chat_template", new_text(std::move(chat))});
  }

  /// Returns the ID of a special token from its text, or from config.json.
  std::optional<std::int64_t> special(const Json& names, const std::string& name) const {
    if (const auto it = names.find(name + "_token"); it != names.end()) {
      const std::string token = it->is_object()   ? text_of(*it, "content")
                                : it->is_string() ? it->get<std::string>()
                                                  : std::string();
      if (const auto id = ids_.find(token); id != ids_.end()) return id->second;
    }
    auto it = config_.find(name + "_token_id");
    if (it == config_.end()) return std::nullopt;
    const Json& id = it->is_array() && !it->empty() ? (*it)[0] : *it;
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tokens_.size()) return std::nullopt;
    return id.get<std::int64_t>();
  }

  const fs::path& folder_;
  const Json& config_;
  Tree tokenizer_;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string, std::int64_t> ids_;
  std::vector<NewEntry> entries_;
};

}  // namespace

Tokenizer read_tokenizer(const fs::path& folder, const Json& config) {
  Tokenizer out;
  try {
    out.entries = Converter(folder, config).run();
  } catch (const Unknown& unknown) {
    out.missing = fmt::format(
        "the file has no tokenizer, since {}: llama.cpp will not load it until "
        "gguf_new_metadata.py "
        "or its own converter (--vocab-only) adds one",
        unknown.reason);
  }
  return out;
}

}  // namespace nvfp4::gguf
