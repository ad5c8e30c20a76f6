#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "checkpoint/base/json.h"
#include "checkpoint/base/json_members.h"
#include "checkpoint/families/select.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/source/content.h"
#include "checkpoint/source/model_folder.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";
constexpr std::string_view kAdapterPrefix = "base_model.model.", kA = ".lora_A.weight",
                           kB = ".lora_B.weight";
constexpr std::int64_t kMaxRank = 4096;

struct Pair {
  const safetensors::TensorInfo *a = nullptr, *b = nullptr;
};

/// The numbers of "rank_pattern" or "alpha_pattern", by module.
class NumbersOfModules {
 public:
  /// Throws FormatError for an invalid expression.
  NumbersOfModules(const Json& config, const char* patterns, const std::string& file) {
    if (!member_of(config, patterns).is_object()) return;
    for (const auto& [pattern, value] : object_of(config, patterns).items()) {
      entries_.push_back(entry_of(pattern));
      numbers_.emplace_back(pattern, value);
    }
    list_.emplace(entries_, file, std::make_shared<MatchBudget>());
  }

  /// Returns the first entry whose pattern matches the end of the module's name, or null.
  const std::pair<std::string, Json>* find(const std::string& module) const {
    const auto at = list_ ? list_->first(module) : std::nullopt;
    return at ? &numbers_[*at] : nullptr;
  }

 private:
  /// Returns an entry for a pattern. PEFT matches `(.*\.)?(pattern)$`. A name needs no expression:
  /// its dots match any character.
  static std::string entry_of(const std::string& pattern) {
    const bool is_name = std::ranges::all_of(pattern, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    });
    if (!is_name) return fmt::format("re:(?:.*\\.)?(?:{})$", pattern);
    std::string glob = pattern;
    std::ranges::replace(glob, '.', '?');
    return glob;
  }

  std::vector<std::string> entries_;
  std::vector<std::pair<std::string, Json>> numbers_;
  std::optional<EntryList> list_;
};

class Adapter {
 public:
  Adapter(const fs::path& folder, double weight)
      : weight_(weight),
        file_((folder / kAdapterConfig).string()),
        weights_(TensorFile::open(folder / kAdapterWeights)) {
    const std::string text = read_model_text(file_);
    config_ = parse_config_json(text, file_);
    check_config();
    for (const safetensors::TensorInfo& t : weights_.tensors()) add(t);
    require<FormatError>(!pairs_.empty(), "{}: holds no tensors, must hold lora_A and lora_B",
                         weights_.path().string());
    ranks_.emplace(config_, "rank_pattern", file_);
    alphas_.emplace(config_, "alpha_pattern", file_);
    identity_ = fmt::format("{} of config {}, weights {}", weight_, hex(fingerprint(text)),
                            hex(content_of(weights_)));
  }

  const std::string& identity() const { return identity_; }

  void add_to(ModelFolder& model) {
    for (LogicalTensor& t : model.tensors) {
      const auto it = pairs_.find(t.module());
      if (it == pairs_.end() || !t.name.ends_with(".weight")) continue;
      t.added.push_back(read(it->first, it->second, t));
      pairs_.erase(it);
    }
    require<ValueError>(
        pairs_.empty(), "{}: is for {}{}, which the model does not have", weights_.path().string(),
        pairs_.empty() ? "" : printable(pairs_.begin()->first),
        pairs_.size() > 1 ? fmt::format(" and {} more weights", pairs_.size() - 1) : "");
  }

 private:
  void refuse(bool is, std::string_view what) const {
    require<UnsupportedError>(!is, "{}: {}, only plain LoRA can be merged", file_, what);
  }

  bool is_set(const char* key) const {
    const Json& value = member_of(config_, key);
    return value.is_boolean() ? value.get<bool>()
                              : !value.is_null() && !(value.is_structured() && value.empty());
  }

  void check_config() const {
    const Json& type = member_of(config_, "peft_type");
    require<FormatError>(type.is_string(), "{}: peft_type is missing", file_);
    refuse(type != "LORA", fmt::format("peft_type is {}", printable(type.get<std::string>())));
    refuse(is_set("use_dora"), "use_dora is set");
    refuse(config_.value("bias", Json("none")) != "none", "bias is trained");
    refuse(is_set("modules_to_save"), "modules_to_save is set");
    refuse(is_set("target_parameters"), "target_parameters is set");
    refuse(is_set("fan_in_fan_out"), "fan_in_fan_out is set");
    refuse(is_set("lora_bias"), "lora_bias is set");
    refuse(is_set("layer_replication"), "layer_replication is set");
  }

  void add(const safetensors::TensorInfo& t) {
    std::string_view name = t.name;
    const bool is_a = name.ends_with(kA), is_b = name.ends_with(kB);
    refuse(!name.starts_with(kAdapterPrefix) || (!is_a && !is_b),
           fmt::format("{} holds {}", kAdapterWeights, printable(t.name)));
    require<FormatError>(t.shape.size() == 2 && is_float(t.dtype),
                         "{}: {} must be a matrix in BF16, F16 or F32", weights_.path().string(),
                         printable(t.name));
    name.remove_prefix(kAdapterPrefix.size());
    name.remove_suffix(is_a ? kA.size() : kB.size());
    Pair& pair = pairs_[std::string(name)];
    (is_a ? pair.a : pair.b) = &t;
  }

  double number(const std::string& key, const Json& value) const {
    require<FormatError>(value.is_number(), "{}: {} is {}, must be a number", file_, key,
                         value.is_null() ? "missing" : "no number");
    return value.get<double>();
  }

  /// Returns the number of the patterns for the module, otherwise that of the configuration's
  /// `key`.
  double number_of(const NumbersOfModules& patterns, const char* key,
                   const std::string& module) const {
    if (const auto* own = patterns.find(module)) return number(own->first, own->second);
    return number(key, member_of(config_, key));
  }

  std::vector<float> floats(const safetensors::TensorInfo& t) const {
    std::vector<std::byte> bytes(t.bytes);
    weights_.read(t, 0, bytes);
    std::vector<float> values(static_cast<std::size_t>(t.shape[0] * t.shape[1]));
    to_floats(t.dtype, bytes, values);
    for (const float v : values)
      require<ValueError>(std::isfinite(v), ErrorCode::not_finite,
                          "{}: {} holds {}, must be finite", weights_.path().string(),
                          printable(t.name), v);
    return values;
  }

  std::shared_ptr<const LowRank> read(const std::string& module, const Pair& pair,
                                      const LogicalTensor& t) const {
    const std::string where = weights_.path().string();
    require<FormatError>(pair.a != nullptr && pair.b != nullptr, "{}: {} has no lora_{}", where,
                         printable(module), pair.a == nullptr ? 'A' : 'B');
    require<UnsupportedError>(
        t.shape.size() == 2 && !t.is_four_bits() && is_float(t.plain_info().dtype),
        "{}: {} of shape and format {}, must be a matrix of BF16, F16, F32 or FP8 for an adapter",
        t.data.describe(), printable(module), t.form_name());
    const std::int64_t rank = pair.a->shape[0];
    require<ValueError>(rank > 0 && rank <= kMaxRank && pair.b->shape[1] == rank &&
                            pair.a->shape[1] == t.cols() && pair.b->shape[0] == t.rows(),
                        "{}: {} is [{}, {}] · [{}, {}], and the model's weight [{}, {}]", where,
                        printable(module), pair.b->shape[0], pair.b->shape[1], pair.a->shape[0],
                        pair.a->shape[1], t.rows(), t.cols());
    const double r = number_of(*ranks_, "r", module);
    require<FormatError>(r == static_cast<double>(rank), "{}: {} has rank {}, {} says {}", where,
                         printable(module), rank, kAdapterConfig, r);
    const double alpha = number_of(*alphas_, "lora_alpha", module);
    const auto scale =
        static_cast<float>(weight_ * alpha / (is_set("use_rslora") ? std::sqrt(r) : r));
    auto low = std::make_shared<LowRank>();
    low->rank = rank;
    low->cols = t.cols();
    low->a = floats(*pair.a);
    low->b = floats(*pair.b);
    for (float& b : low->b) b *= scale;
    return low;
  }

  double weight_;
  std::string file_, identity_;
  TensorFile weights_;
  Json config_;
  std::optional<NumbersOfModules> ranks_, alphas_;
  std::map<std::string, Pair, std::less<>> pairs_;
};

}  // namespace

WeightedAdapter parse_adapter(const std::string& text) {
  std::error_code error;
  const std::size_t at = text.rfind('=');
  if (at == std::string::npos || fs::exists(text, error)) return {text};
  double weight = 1;
  const char *begin = text.c_str() + at + 1, *end = text.c_str() + text.size();
  const auto read = std::from_chars(begin, end, weight);
  require<ValueError>(read.ec == std::errc{} && read.ptr == end && std::isfinite(weight),
                      "merge = {}: must be a folder, or a folder, \"=\" and a finite number",
                      printable(text));
  return {text.substr(0, at), weight};
}

void add_adapters(ModelFolder& model, const std::vector<std::string>& adapters) {
  for (const std::string& text : adapters) {
    const auto [folder, weight] = parse_adapter(text);
    Adapter adapter(folder, weight);
    adapter.add_to(model);
    model.merged.push_back(adapter.identity());
  }
}

}  // namespace nvfp4::checkpoint
