#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "checkpoint/base/json_members.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/expression.h"
#include "checkpoint/match/pattern.h"

namespace nvfp4::gguf {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// Size of the longest name that is split into parts.
constexpr std::size_t kMostName = 200;

/// Parameters of the file's tensors. `per_expert`: parameters of one of `experts` experts.
struct Count {
  double all = 0, shared = 0, per_expert = 0;
  std::int64_t experts = 0;
};

Count count_of(const std::vector<TensorSpec>& tensors) {
  Count count;
  std::int64_t stacks = 0, experts = 0;
  for (const TensorSpec& t : tensors) {
    double size = 1;
    for (const std::int64_t d : t.shape) size *= static_cast<double>(d);
    count.all += size;
    const bool stack = t.name.find("_exps.") != std::string::npos && t.shape.size() >= 3;
    if (!stack) {
      count.shared += size;
      continue;
    }
    count.per_expert += std::floor(size / static_cast<double>(t.shape[0]));
    experts += t.shape[0];
    ++stacks;
  }
  if (stacks > 0) count.experts = experts / stacks;
  return count;
}

/// Returns "1.2B": at least two digits, in the largest unit below the number.
std::string rounded(double parameters) {
  constexpr std::pair<double, char> kUnits[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {0, 'K'}};
  const auto& [unit, letter] =
      *std::ranges::find_if(kUnits, [&](const auto& u) { return parameters > u.first; });
  const double scaled = parameters / (unit == 0 ? 1e3 : unit);
  const std::string whole = fmt::format("{:.0f}", scaled);
  const int digits = whole == "0" ? 0 : static_cast<int>(whole.size());
  return fmt::format("{:.{}f}{}", scaled, std::max(2 - digits, 0), letter);
}

std::string size_label(const Count& count) {
  return count.experts > 0
             ? fmt::format("{}x{}", count.experts, rounded(count.shared + count.per_expert))
             : rounded(count.all);
}

/// Returns the parts that are not empty.
Words split(std::string_view text, char at) {
  Words parts;
  for (const std::string_view part : checkpoint::split_name(text, at))
    if (!part.empty()) parts.emplace_back(part);
  return parts;
}

bool matches(const char* pattern, const std::string& text) {
  return checkpoint::Expression(pattern).matches(text);
}

/// Returns "Llama 3.1 8B Instruct" for "llama-3.1-8B-instruct".
std::string title(std::string text) {
  std::ranges::replace(text, '-', ' ');
  Words words = split(text, ' ');
  for (std::string& word : words) {
    const bool lower =
        std::ranges::none_of(word, [](unsigned char c) { return std::isupper(c); }) &&
        std::ranges::any_of(word, [](unsigned char c) { return std::islower(c); });
    if (!lower || matches(R"(v\d+(?:\.\d+)*|\d.*)", word)) continue;
    bool start = true;  // of a run of letters
    for (char& c : word) {
      const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
      if (letter && start) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      start = !letter;
    }
  }
  return fmt::format("{}", fmt::join(words, " "));
}

/// The parts of a model's name, as in "org/Basename-Size-Finetune-Version".
struct NameParts {
  std::string name, organization, basename, finetune, version, size_label;
};

enum class Part : std::uint8_t { basename, size_label, finetune, version, type };

/// Brings a size to the form "1.5B". `is_length`: it is far from the number of parameters, so it is
/// likely a context length.
std::string normalized_size(std::string part, double parameters, bool& is_length) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::ranges::replace(part, '_', '.');
  if (digit(part.back()))  // 7b1
    part = part.substr(0, part.size() - 2) + "." + part.back() + part[part.size() - 2];
  if (part.size() < 2 || !digit(part[part.size() - 2])) return part;
  part.back() = static_cast<char>(std::toupper(static_cast<unsigned char>(part.back())));
  const std::string number = part.substr(0, part.size() - 1);
  if (parameters == 0 || !matches(R"(\d+(\.\d+)?)", number)) return part;
  const double size =
      std::stod(number) *
      std::pow(1000, static_cast<double>(std::string_view(" KMBT").find(part.back())));
  is_length = std::abs(size - parameters) > std::floor(7 * parameters / 8);
  if (is_length)
    part.back() = static_cast<char>(std::tolower(static_cast<unsigned char>(part.back())));
  return part;
}

NameParts parts_of(const std::string& id, double parameters) {
  NameParts out;
  out.name = id;
  if (id.empty() || id.find(' ') != std::string::npos || id.size() > kMostName) return out;
  if (const std::size_t slash = id.find('/'); slash != std::string::npos) {
    out.organization = id.substr(0, slash);
    out.name = id.substr(slash + 1);
    if (out.organization.starts_with('.')) out.organization.clear();
  }
  Words words = split(out.name, '-');
  std::vector<std::set<Part>> kinds(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    if (matches(R"((?i)(v|iter)?\d+([.]\d+)*)", word)) {
      kinds[i] = {Part::version};
    } else if (matches(R"((?i)i?q\d(_\w)*|b?fp?(16|32))", word)) {
      kinds[i] = {Part::type};
      for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    } else if (i > 0 &&
               matches(R"((?i)(A|\d+x)?\d+([._]\d+)?[KMBT]\d?|small|mini|medium|large|x?xl)",
                       word)) {
      bool is_length = false;
      word = normalized_size(word, parameters, is_length);
      kinds[i] = {is_length ? Part::finetune : Part::size_label};
    } else if (i > 0 && matches("(?i)chat|instruct|vision|lora", word)) {
      kinds[i] = {Part::finetune};
    }
  }
  const auto is_word = [](const std::string& word) {
    return std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c); });
  };
  bool numbered = false;
  for (std::size_t i = 0; i < words.size(); ++i)
    numbered |= kinds[i].contains(Part::size_label) &&
                std::ranges::any_of(words[i], [](unsigned char c) { return std::isdigit(c); });
  bool at_start = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (numbered && is_word(words[i])) kinds[i].erase(Part::size_label);
    const bool letter = std::isalpha(static_cast<unsigned char>(words[i][0])) != 0;
    at_start &= (kinds[i].empty() && letter) || kinds[i].contains(Part::version);
    if (at_start)
      kinds[i].insert(Part::basename);
    else if (kinds[i].empty())
      kinds[i] = {Part::finetune};
  }
  for (std::size_t i = words.size(); i-- > 0;) {  // a version behind the name is not a part of it
    if (!kinds[i].contains(Part::basename) || kinds[i].size() < 2) break;
    kinds[i].erase(Part::basename);
  }
  const auto join = [&](Part part) {
    Words chosen;
    for (std::size_t i = 0; i < words.size(); ++i)
      if (kinds[i].contains(part) &&
          (part != Part::version || !kinds[i].contains(Part::basename)) &&
          (part != Part::size_label || std::ranges::find(chosen, words[i]) == chosen.end()))
        chosen.push_back(words[i]);
    return fmt::format("{}", fmt::join(chosen, "-"));
  };
  out.finetune = join(Part::finetune);
  out.version = join(Part::version);
  out.size_label = join(Part::size_label);
  if (!out.finetune.empty() || !out.version.empty() || !out.size_label.empty())
    out.basename = join(Part::basename);  // alone it may be anything
  return out;
}

/// Reads a file of the model's folder. Returns "" if there is none or it has more bytes than
/// `most`.
std::string text_in(const fs::path& path, std::uintmax_t most) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > most || error) return {};
  return checkpoint::read_model_text(path);
}

class General {
 public:
  General(const fs::path& folder, const Json& config, const std::vector<TensorSpec>& tensors)
      : folder_(folder),
        config_(config),
        count_(count_of(tensors)),
        card_(checkpoint::front_matter(text_in(folder / "README.md", 1 << 24))) {}

  std::vector<NewEntry> run() {
    add_sampling();
    add_name();
    add("license", joined("license", ","));
    for (const char* key : {"license_name", "license_link"}) {
      std::string name = key;
      name[name.find('_')] = '.';
      add(name, joined(key, ","));
    }
    add_sources("base_model", {"base_model", "base_models", "base_model_sources"});
    add_words("tags", {"tags", "pipeline_tag"});
    add_words("languages", {"languages", "language"});
    return std::move(out_);
  }

 private:
  void add(const std::string& key, std::string text) {
    if (!text.empty()) out_.push_back({"general." + key, new_text(std::move(text))});
  }

  std::string joined(const std::string& key, std::string_view with) const {
    const auto it = card_.find(key);
    return it == card_.end() ? "" : fmt::format("{}", fmt::join(it->second, with));
  }

  void add_words(const std::string& key, std::initializer_list<const char*> members) {
    Words words;
    for (const char* member : members)
      if (const auto it = card_.find(member); it != card_.end())
        words.insert(words.end(), it->second.begin(), it->second.end());
    if (!words.empty()) out_.push_back({"general." + key, new_strings(std::move(words))});
  }

  void add_sampling() {
    const Json config =
        checkpoint::parse_json_or_null(text_in(folder_ / "generation_config.json", 1 << 20));
    struct Setting {
      const char *member, *key;
      bool integer;
    };
    constexpr Setting kSettings[] = {{"top_k", "top_k", true},
                                     {"top_p", "top_p", false},
                                     {"min_p", "min_p", false},
                                     {"temperature", "temp", false}};
    if (!config.is_object()) return;
    for (const auto& [member, key, integer] : kSettings) {
      const auto& number = member_of(config, member);
      if (!number.is_number() || (integer && !number.is_number_integer())) continue;
      const auto value = number.template get<double>();
      if (!std::isfinite(value) || std::abs(value) > 1e9) continue;
      const std::string name = fmt::format("general.sampling.{}", key);
      if (integer)
        out_.push_back(
            {name, {.type = ValueType::i32, .value = number.template get<std::int64_t>()}});
      else
        out_.push_back({name, new_f32(value)});
    }
  }

  void add_name() {
    NameParts parts = named_in_config();
    const auto hub = checkpoint::hub_model_of(folder_);
    const fs::path path = fs::absolute(folder_).lexically_normal();
    const fs::path named = path.has_filename() ? path : path.parent_path();
    const NameParts own = parts_of(hub ? hub->id : named.filename().string(), count_.all);
    for (std::string NameParts::*member :
         {&NameParts::name, &NameParts::organization, &NameParts::basename, &NameParts::finetune,
          &NameParts::version, &NameParts::size_label})
      if ((parts.*member).empty()) parts.*member = own.*member;
    add("name", title(parts.name));
    add("version", parts.version);
    add("organization", title(parts.organization));
    add("finetune", parts.finetune);
    add("basename", parts.basename);
    add("size_label", parts.size_label.empty() ? size_label(count_) : parts.size_label);
  }

  /// Returns the name that config.json has, unless that is a path.
  NameParts named_in_config() const {
    const std::string id = text_of(config_, "_name_or_path");
    return std::ranges::count(id, '/') > 1 ? NameParts() : parts_of(id, count_.all);
  }

  void add_sources(const std::string& key, std::initializer_list<const char*> members) {
    for (const char* member : members) {
      const auto it = card_.find(member);
      if (it == card_.end()) continue;
      out_.push_back({fmt::format("general.{}.count", key), new_u32(it->second.size())});
      for (std::size_t i = 0; i < it->second.size(); ++i)
        add_source(fmt::format("{}.{}.", key, i), it->second[i]);
      return;
    }
  }

  void add_source(const std::string& prefix, const std::string& id) {
    constexpr std::string_view kHub = "https://huggingface.co/";
    const bool is_url = id.find("://") != std::string::npos;
    const std::string name = id.starts_with(kHub) ? id.substr(kHub.size()) : is_url ? "" : id;
    const NameParts parts =
        is_url && std::ranges::count(name, '/') != 1 ? NameParts() : parts_of(name, count_.all);
    add(prefix + "name", title(parts.name));
    add(prefix + "version", parts.version);
    add(prefix + "organization", title(parts.organization));
    if (is_url)
      add(prefix + "repo_url", id);
    else if (!parts.organization.empty())
      add(prefix + "repo_url", fmt::format("{}{}/{}", kHub, parts.organization, parts.name));
  }

  const fs::path& folder_;
  const Json& config_;
  Count count_;
  std::map<std::string, Words> card_;
  std::vector<NewEntry> out_;
};

}  // namespace

std::vector<NewEntry> general_entries(const fs::path& folder, const Json& config,
                                      const std::vector<TensorSpec>& tensors) {
  return General(folder, config, tensors).run();
}

}  // namespace nvfp4::gguf
