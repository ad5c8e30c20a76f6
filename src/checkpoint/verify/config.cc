// Checks that the configuration describes the files.

#include <algorithm>
#include <map>

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/families/select.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

class ConfigCheck {
 public:
  ConfigCheck(const Subject& subject, Findings& findings)
      : subject_(subject), findings_(findings), nvfp4_(subject.nvfp4()) {}

  void run() {
    if (!subject_.folder) return;
    check_mtp();
    check_keys();
    check_params();
    const Declared* declared = subject_.declared();
    if (nvfp4_.empty()) return check_declared_only();
    if (!nvfp4_.front()->names->marker.empty()) return;  // each weight declares itself
    if (declared == nullptr) {
      if (subject_.config.is_object())
        findings_.add("undeclared", "config.json",
                      "{}: {} NVFP4 weights and no quantization_config", subject_.config_file,
                      nvfp4_.size());
      return;
    }
    for (const auto* each : {&subject_.in_config, &subject_.in_hf_quant})
      if (*each) check_one(**each);
    check_agreement();
    try {
      exclusions_.emplace(*declared);
      targets_.emplace(*declared);
      check_modules(*declared);
      check_inputs(*declared);
    } catch (const FormatError& e) {  // an expression that is invalid or takes too long
      findings_.add("bad-config", std::filesystem::path(declared->file).filename().string(),
                    e.what());
    }
  }

 private:
  using Match = Exclusions::Match;

  void check_declared_only() {
    for (const auto* declared : {&subject_.in_config, &subject_.in_hf_quant}) {
      const std::optional<Declared>& each = *declared;
      if (!each || !says_nvfp4(*each) || !subject_.defective.empty() || !subject_.complete)
        continue;
      findings_.add("declared-only", std::filesystem::path(each->file).filename().string(),
                    "{}: says NVFP4, and no weight is", each->file);
    }
  }

  static bool says_nvfp4(const Declared& d) {
    return d.algorithm.find("NVFP4") != std::string::npos || d.moe_algorithm == "NVFP4" ||
           d.format == "nvfp4-pack-quantized";
  }

  void check_keys() {
    if (!subject_.in_hf_quant) return;
    for (const std::string& key : subject_.in_hf_quant->missing_keys)
      findings_.add("hf-quant-keys", "hf_quant_config.json", "{}: quantization.{} is missing",
                    subject_.in_hf_quant->file, key);
  }

  void check_one(const Declared& d) {
    const std::string name = std::filesystem::path(d.file).filename().string();
    const CheckpointFormat& format = *nvfp4_.front()->names->format;
    const bool from_modelopt_file = subject_.in_hf_quant && d.file == subject_.in_hf_quant->file;
    const std::string method = from_modelopt_file ? "modelopt" : d.method;
    const bool same =
        format.is_method != nullptr ? format.is_method(method) : method == format.name;
    if (!same)
      findings_.add("declared-format", name, "{}: quant_method '{}', the weights are stored as {}",
                    d.file, method, format.name);
    if (d.group_size && *d.group_size != kBlock)
      findings_.add("group-size", name, "{}: group_size = {}, must be 16", d.file, *d.group_size);
    for (const DeclaredGroup& group : d.groups)
      if (group.is_float && group.bits == 4 && group.group_size != kBlock && group.group_size != 32)
        findings_.add("group-size", name, "{}: group_size = {} of 4-bit weights, must be 16",
                      d.file, group.group_size);
  }

  void check_params() {
    const std::string in_config = subject_.in_config ? subject_.in_config->method : "";
    if (!subject_.method_in_params || *subject_.method_in_params == in_config) return;
    findings_.add("configs-disagree", kParamsName, "quant_method '{}' in config.json, '{}' in {}",
                  in_config, *subject_.method_in_params, kParamsName);
  }

  void check_agreement() {
    if (!subject_.in_config || !subject_.in_hf_quant) return;
    const Declared &a = *subject_.in_config, &b = *subject_.in_hf_quant;
    if (a.algorithm != b.algorithm && !a.algorithm.empty())
      findings_.add("configs-disagree", "hf_quant_config.json",
                    "quant_algo '{}' in config.json, '{}' in hf_quant_config.json", a.algorithm,
                    b.algorithm);
    const std::set<std::string> in_a(a.ignore.begin(), a.ignore.end()),
        in_b(b.ignore.begin(), b.ignore.end());
    std::vector<std::string> differ;
    std::ranges::set_symmetric_difference(in_a, in_b, std::back_inserter(differ));
    if (!differ.empty())
      findings_.add("excludes-differ", "hf_quant_config.json",
                    "{} exclusions are in one file only, such as {}", differ.size(),
                    differ.front());
  }

  void check_modules(const Declared& d) {
    std::set<std::string> quantized;
    for (const LogicalTensor& t : subject_.tensors)
      if (t.is_plain()) plain_.insert(t.module());
    for (const LogicalTensor& t : subject_.tensors) {
      const std::string module = t.module();
      if (!t.is_plain()) quantized.insert(module);
      if (t.is_nvfp4() ||
          (!t.is_plain() && t.encoding() != Encoding::int4 && d.is_compressed_tensors()))
        check_quantized(d, t, module);
      if (t.is_plain()) check_kept(d, t, module);
    }
    for (const auto& [layer, algorithm] : d.layers) {
      const bool there = layer.find('*') != std::string::npos || quantized.contains(layer) ||
                         holds_below(quantized, layer + ".");
      if (!there)
        findings_.add("quantized-layer-absent", layer,
                      "{}: quantized_layers names {}, no such weight is quantized", d.file, layer);
    }
  }

  void check_quantized(const Declared& d, const LogicalTensor& t, const std::string& module) {
    auto [match, entry] = exclusions_->find(module);
    // The whole name of another module means that one. Loaders that match substrings differ.
    if (match == Match::whole && entry != module && plain_.contains(entry))
      match = d.is_compressed_tensors() ? Match::none : Match::substring;
    const bool reads_list = !subject_.is_diffusers();  // which goes by the tensors
    if (match == Match::whole && reads_list)
      findings_.add("excluded-quantized", module, "{} is quantized, and excluded by '{}' of {}",
                    module, entry, d.file);
    if (match == Match::substring && reads_list)
      findings_.add("excluded-by-substring", module,
                    "{} is quantized, and '{}' of {} occurs in its name", module, entry, d.file);
    if (!d.layers.empty() && d.layer_algorithm(module) == nullptr)
      findings_.add("not-in-quantized-layers", module,
                    "{} is quantized, and not in quantized_layers of {}", module, d.file);
    if (d.is_compressed_tensors() && match == Match::none) check_group(d, t, module);
  }

  void check_group(const Declared& d, const LogicalTensor& t, const std::string& module) {
    if (d.groups.empty()) return;
    const bool eight = t.encoding() == Encoding::fp8 || t.encoding() == Encoding::int8;
    const std::int64_t bits = eight ? 8 : 4;
    const DeclaredTargets::Group group = targets_->group_of(module, bits);
    if (group.first == nullptr)
      return findings_.add("not-in-quantized-layers", module,
                           "{} is {}, and no target of config_groups of {} names it", module,
                           t.form_name(), d.file);
    if (!group.fits)
      findings_.add("declared-format", module, "{} is {}, and its group in {} says {} bits", module,
                    t.form_name(), d.file, group.first->bits);
  }

  static bool holds_below(const std::set<std::string>& modules, const std::string& prefix) {
    const auto first = modules.lower_bound(prefix);
    return first != modules.end() && first->starts_with(prefix);
  }

  void check_kept(const Declared& d, const LogicalTensor& t, const std::string& module) {
    if (!t.name.ends_with(".weight") || t.shape.size() != 2) return;
    if (!d.layers.empty()) return;
    if (d.method == "mlx") return;  // its readers go by the tensors
    const bool is_experts_only = !d.moe_algorithm.empty();
    if (is_experts_only) return;
    const Selection s = classify(*t.data.info, subject_.model_type);
    if (!is_float(t.data.info->dtype)) return;
    if (s.kind != "linear" && s.kind != "expert" && s.kind != "lm_head" && s.kind != "head") return;
    if (exclusions_->find(module).match != Match::none || !targets_->hold(module)) return;
    findings_.add("kept-not-excluded", module, "{} is {} and not excluded in {}", module,
                  safetensors::dtype_name(t.data.info->dtype), d.file);
  }

  void check_inputs(const Declared& d) {
    const FuseRules rules({}, std::span(&subject_.model_type, 1));
    std::map<std::string, std::pair<bool, std::string>> fused;
    for (const LogicalTensor* t : nvfp4_) {
      const std::optional<bool> wanted = targets_->activations_of(t->module());
      if (!wanted) continue;
      std::string key = expert_layer_of(t->module());
      if (key.empty()) key = rules.key(t->module());
      const auto& [first, name] = fused.try_emplace(key, *wanted, t->module()).first->second;
      if (first != *wanted)
        findings_.add("fused-partly", t->module(), "{} is W4A{} in {}, {} is W4A{}", t->module(),
                      *wanted ? 4 : 16, d.file, name, first ? 4 : 16);
      if (*wanted && !t->input)
        findings_.add("missing-input-scale", t->module(),
                      "{}: no '{}{}' beside it, and {} wants 4-bit activations", t->data.describe(),
                      t->module(), t->names->input, d.file);
      if (!*wanted && t->input)
        findings_.add("unexpected-input-scale", t->module(), "{}: only weights are quantized",
                      t->input.describe());
    }
  }

  void check_mtp() {
    const PredictionLayers layers(subject_);
    if (layers.wanted() <= 0 || layers.first() <= 0 ||
        std::ranges::any_of(subject_.tensors,
                            [&](const LogicalTensor& t) { return layers.hold(t.name); }))
      return;
    findings_.add("mtp-dropped", "config.json",
                  "{}: {} multi-token prediction layer(s), and no tensor of layers.{}.",
                  subject_.config_file, layers.wanted(), layers.first());
  }

  const Subject& subject_;
  Findings& findings_;
  std::vector<const LogicalTensor*> nvfp4_;
  std::set<std::string, std::less<>> plain_;  ///< modules that are not quantized
  std::optional<Exclusions> exclusions_;      ///< for the configuration that loaders use
  std::optional<DeclaredTargets> targets_;    ///< for the configuration that loaders use
};

}  // namespace

PredictionLayers::PredictionLayers(const Subject& subject) {
  if (!subject.config.is_object()) return;
  const auto& config = language_model_config(subject.config);
  first_ = integer_of(config, "num_hidden_layers", -1);
  wanted_ = std::max(integer_of(config, "num_nextn_predict_layers", -1),
                     integer_of(config, "mtp_num_hidden_layers", -1));
}

bool PredictionLayers::hold(std::string_view module) const {
  if (module.find("mtp") != module.npos || module.find("nextn") != module.npos) return true;
  if (first_ < 0) return false;
  const std::int64_t behind = layer_number(module).value_or(-1) - first_;
  return behind >= 0 && behind < std::max<std::int64_t>(wanted_, 1);
}

void check_config(const Subject& subject, Findings& findings) {
  ConfigCheck(subject, findings).run();
}

Exclusions::Exclusions(const Declared& declared)
    : entries_(declared.ignore), list_(entries_, declared.file, declared.budget) {
  if (declared.is_compressed_tensors()) return;
  std::vector<std::string_view> sorted(entries_.begin(), entries_.end());
  std::erase_if(sorted, [](std::string_view entry) { return entry.starts_with("re:"); });
  std::ranges::sort(sorted);
  for (const std::string_view entry : sorted)
    if (pieces_.empty() || !entry.starts_with(pieces_.back())) pieces_.push_back(entry);
}

Exclusions::Found Exclusions::find(std::string_view module) const {
  if (const auto first = list_.first(module)) return {Match::whole, entries_[*first]};
  // No entry starts with another. So only the last entry that sorts at or before the text can be
  // its start.
  for (std::size_t at = 0; at < module.size() && !pieces_.empty(); ++at) {
    const std::string_view rest = module.substr(at);
    const auto after = std::ranges::upper_bound(pieces_, rest);
    if (after != pieces_.begin() && rest.starts_with(*std::prev(after)))
      return {Match::substring, *std::prev(after)};
  }
  return {};
}

}  // namespace nvfp4::checkpoint
