#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <span>

#include "checkpoint/gguf/tokenizer/tokenizer.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/folder_names.h"

namespace nvfp4::gguf {
namespace {

/// The start of the keys of tokenizers.
constexpr std::string_view kStart = "tokenizer.ggml.";

/// The kinds of tokens, by their names in tokenizer_config.json and in a file.
constexpr std::pair<const char*, std::string_view> kKeys[] = {
    {"bos", "bos_token_id"},       {"eos", "eos_token_id"},     {"unk", "unknown_token_id"},
    {"sep", "seperator_token_id"}, {"pad", "padding_token_id"}, {"mask", "mask_token_id"},
    {"eot", "eot_token_id"},       {"eom", "eom_token_id"}};
/// The number of kinds that tokenizer_config.json has names for.
constexpr std::size_t kNamed = 6;

/// The tokens of GLM that its files have no name for.
constexpr std::pair<const char*, const char*> kGlmTokens[] = {
    {"bos", "[gMASK]"}, {"eot", "<|user|>"}, {"unk", "<|endoftext|>"}, {"eom", "<|observation|>"}};

/// Returns the special token that an item of a template is, or the empty text.
std::string token_of(const Tree& item) { return text_of(member_of(item, "SpecialToken"), "id"); }
std::string sequence_of(const Tree& item) { return text_of(member_of(item, "Sequence"), "id"); }

class SpecialTokens {
 public:
  SpecialTokens(const Tree& tokenizer, Tree side, const Json& config, std::size_t count)
      : config_(config), side_(std::move(side)), count_(count) {
    for (const Tree& added : list_of(tokenizer, "added_tokens"))
      if (const std::string text = text_of(added, "content");
          !text.empty() && is_token(member_of(added, "id")))
        ids_.try_emplace(text, added["id"].get<std::uint64_t>());
    const Tree& post = member_of(tokenizer, "post_processor");
    const Tree& steps = list_of(post, "processors");
    if (steps.empty()) read_step(post);
    for (const Tree& step : steps) read_step(step);
  }

  std::vector<NewEntry> run(const Architecture& architecture, const std::filesystem::path& folder) {
    std::map<std::string_view, std::uint64_t> numbers;
    for (const auto& [kind, key] : std::span(kKeys).first<kNamed>())
      if (const std::optional<std::uint64_t> id = number_of_kind(kind)) numbers[kind] = *id;
    if (const auto id = ids_.find(former_end_); id != ids_.end() && name_of("eos") != former_end_)
      numbers["eot"] = id->second;
    if (architecture.name.starts_with("glm"))
      for (const auto& [kind, token] : kGlmTokens)
        if (const auto id = ids_.find(token); id != ids_.end())
          numbers.try_emplace(kind, id->second);
    if (const auto end = config_.find("eod_token_id");
        architecture.name == "hunyuan-dense" && end != config_.end() && is_token(*end))
      numbers["eos"] = end->get<std::uint64_t>();
    for (const auto& [kind, key] : kKeys)
      if (const auto id = numbers.find(kind); id != numbers.end()) add(key, new_u32(id->second));
    add_flags(architecture);
    add_chat(folder);
    return std::move(entries_);
  }

 private:
  void add(std::string_view key, NewValue value) {
    entries_.push_back({fmt::format("{}{}", kStart, key), std::move(value)});
  }

  /// Reports whether a value is the number of a token.
  template <class J>
  bool is_token(const J& id) const {
    return id.is_number_unsigned() && id.template get<std::uint64_t>() < count_;
  }

  /// Sets the text of a token of tokenizer_config.json, and returns it.
  std::string name_of(const char* kind) {
    if (!side_.is_object()) return {};
    const std::string member = std::string(kind) + "_token";
    const auto it = side_.find(member);
    if (it == side_.end()) return {};
    if (it->is_object()) *it = text_of(*it, "content");
    return it->is_string() ? it->get<std::string>() : std::string();
  }
  void set_name(const char* kind, const std::string& token) {
    if (side_.is_object()) side_[std::string(kind) + "_token"] = token;
  }

  /// Reads a step behind the tokenizer, which may add tokens to each text.
  void read_step(const Tree& step) {
    const std::string type = text_of(step, "type");
    if (type == "ByteLevel") {
      flags_.try_emplace("bos", false);
      flags_.try_emplace("eos", false);
    }
    if (type != "TemplateProcessing") return;
    const Tree &one = list_of(step, "single"), &two = list_of(step, "pair");
    const std::string first = one.size() > 1 ? token_of(one.front()) : std::string();
    const std::string last = one.size() > 1 ? token_of(one.back()) : std::string();
    if (!first.empty()) {
      if (name_of("bos").empty()) set_name("bos", first);
      flags_["bos"] = !side_.is_object() || name_of("bos") == first;
    }
    if (!last.empty()) {
      former_end_ = name_of("eos");
      set_name("eos", last);
      flags_["eos"] = true;
    }
    if (!two.empty()) read_pair(two, first, last);
  }

  /// Reads a template for two texts, without the tokens at its ends: A, separators, B.
  void read_pair(const Tree& two, const std::string& first, const std::string& last) {
    std::size_t begin = !first.empty() && token_of(two.front()) == first ? 1 : 0;
    std::size_t end = two.size() - (!last.empty() && token_of(two.back()) == last ? 1 : 0);
    if (end < begin + 3 || sequence_of(two[begin]) != "A" || sequence_of(two[end - 1]) != "B")
      return;
    ++begin;
    --end;
    const auto separates = [&](std::size_t at) {
      const std::string token = token_of(two[at]);
      return !token.empty() && (token == name_of("sep") || token == name_of("eos"));
    };
    const bool adds =
        (last.empty() && separates(begin)) || (end == begin + 2 && separates(begin + 1));
    flags_["sep"] = adds;
    if (adds && name_of("sep").empty()) set_name("sep", name_of("eos"));
  }

  /// Returns the number of a token from its text, or else from config.json.
  std::optional<std::uint64_t> number_of_kind(const char* kind) {
    if (const auto id = ids_.find(name_of(kind)); id != ids_.end()) return id->second;
    const auto it = config_.find(std::string(kind) + "_token_id");
    if (it == config_.end()) return std::nullopt;
    const Json& id = it->is_array() && !it->empty() ? (*it)[0] : *it;
    return is_token(id) ? std::optional(id.get<std::uint64_t>()) : std::nullopt;
  }

  void add_flags(const Architecture& architecture) {
    for (const char* kind : {"bos", "eos", "sep"}) {
      const std::string member = std::string("add_") + kind + "_token";
      if (const Tree& flag = member_of(side_, member.c_str()); flag.is_boolean())
        flags_.try_emplace(kind, flag.get<bool>());
    }
    const bool is_llama = architecture.name == "llama" || architecture.name == "granite";
    const auto size = config_.find("vocab_size");
    if (is_llama && size != config_.end() && *size == 49152) flags_["bos"] = false;
    if (architecture.name == "gemma4") flags_["bos"] = true;
    for (const auto& [kind, value] : flags_) add("add_" + kind + "_token", new_bool(value));
    if (const Tree& prefix = member_of(side_, "add_prefix_space"); is_llama && prefix.is_boolean())
      add("add_space_prefix", new_bool(prefix.get<bool>()));
    if (architecture.name == "gemma3" || architecture.name == "gemma4")
      add("add_space_prefix", new_bool(false));
  }

  void add_chat(const std::filesystem::path& folder) {
    constexpr const char* kChat = "chat_template";
    const std::string key = std::string("tokenizer.") + kChat;
    std::string chat = text_of(side_, kChat);
    std::vector<std::string> names;
    for (const Tree& choice : list_of(side_, kChat)) {
      std::string name = text_of(choice, "name");
      for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      if (name == "default") {
        chat = text_of(choice, "template");
      } else if (!name.empty() && std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
        entries_.push_back({key + "." + name, new_text(text_of(choice, "template"))});
      }
    }
    if (!names.empty()) entries_.push_back({key + "s", new_strings(std::move(names))});
    const std::filesystem::path file = folder / "chat_template.jinja";
    if (chat.empty() && std::filesystem::exists(file)) {
      checkpoint::ModelLinks(folder).require_inside(file);
      chat = checkpoint::read_model_text(file);
    }
    if (!chat.empty()) entries_.push_back({key, new_text(std::move(chat))});
  }

  const Json& config_;
  Tree side_;
  std::size_t count_;
  std::map<std::string, std::uint64_t> ids_;  ///< numbers of added tokens
  std::map<std::string, bool> flags_;         ///< whether a token is added to each text
  std::string former_end_;  ///< the end that another one replaces, as at the end of a turn
  std::vector<NewEntry> entries_;
};

}  // namespace

std::vector<NewEntry> special_tokens(const Tree& tokenizer, Tree side,
                                     const std::filesystem::path& folder, const Json& config,
                                     const Architecture& architecture, std::size_t count) {
  return SpecialTokens(tokenizer, std::move(side), config, count).run(architecture, folder);
}

}  // namespace nvfp4::gguf
