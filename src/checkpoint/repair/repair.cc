#include "nvfp4/checkpoint/repair.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/plan/steps.h"
#include "checkpoint/run/start.h"
#include "checkpoint/source/quantized_tensors.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/write/write_plan.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

using namespace checkpoint;

/// Returns the way in which findings of this code are repaired.
Repair repair_of(std::string_view code) {
  return std::ranges::find(finding_kinds(), code, &FindingKind::code)->repair;
}

class Repairer {
 public:
  explicit Repairer(const RepairOptions& options)
      : options_(options),
        run_(start_run(options, {{"source", options.source.value_or("")}})),
        rules_({}) {}

  RepairReport run() {
    const CheckpointFormat& of_name = default_checkpoint_format(options_.input);
    require<UnsupportedError>(of_name.is_repaired,
                              "{}: {} files are not repaired; hint: repair the checkpoint that it "
                              "was made of, and convert that",
                              options_.input.string(), of_name.extension);
    report_.before = verify(options_.input);
    model_ = open_model_folder(options_.input, /*to_repair=*/true);
    rules_ = FuseRules({}, model_.config.model_types);
    if (options_.source) source_.emplace(*options_.source);
    choose_form();
    read_findings();
    drop_orphans();
    fix_order();
    fix_sense_and_signs();
    group();
    refuse_others();
    quantize_again();
    fix_inputs();
    make_globals_equal();
    report_.written = write();
    add_losses();
    if (!options_.dry_run) report_.after = verify(options_.output);
    return std::move(report_);
  }

 private:
  VerifyReport verify(const std::filesystem::path& path) const {
    VerifyOptions verify;
    verify.path = path;
    verify.source = options_.source;
    verify.progress = options_.progress;
    return verify_checkpoint(verify);
  }

  void change(std::string_view code, const std::string& tensor, std::string text) {
    report_.changes.push_back({std::string(code), tensor, std::move(text), {}});
  }

  static std::vector<std::string_view> repaired_formats() {
    std::vector<std::string_view> names;
    for (const CheckpointFormat* format : checkpoint_formats())
      if (format->is_repaired) names.push_back(format->name);
    return names;
  }

  /// Sets the format and the schemes of the output: those of the input.
  void choose_form() {
    bool inputs = false;
    const CheckpointFormat* format = nullptr;
    for (const LogicalTensor& t : model_.tensors) {
      if (!t.is_nvfp4()) continue;
      if (format == nullptr) format = t.names->format;
      require<UnsupportedError>(
          t.names->format == format,
          "{}: stored as {}, others as {}; hint: nvfp4 convert makes them one", t.data.describe(),
          t.names->format->name, format->name);
      inputs |= static_cast<bool>(t.input);
    }
    const std::string where = options_.input.string();
    require<UnsupportedError>(
        format != nullptr,
        "{}: no NVFP4 weight, nothing to repair; hint: nvfp4 quantize makes NVFP4 weights", where);
    require<UnsupportedError>(
        format->is_repaired,
        "{}: stored as {}; hint: nvfp4 convert --to {} writes one that can be repaired", where,
        format->name, fmt::join(repaired_formats(), " or "));
    transform_.format = format->name;
    std::optional<Declared>& declared = model_.declared;
    std::optional<DeclaredTargets> targets;
    if (declared) declared->budget = transform_.match_budget;
    const bool one = declared && declared->has_one_scheme();
    if (declared && !one) targets.emplace(*declared);
    transform_.takes_scheme = true;
    for (LogicalTensor& t : model_.tensors) {
      if (!t.is_nvfp4()) continue;
      const std::optional<bool> own = one       ? declared->activations()
                                      : targets ? targets->activations_of(t.module())
                                                : std::nullopt;
      t.weights_only = !own.value_or(inputs);
    }
  }

  void read_findings() {
    std::set<std::string> told;
    for (const Finding& f : report_.before.findings) {
      require<UnsupportedError>(repair_of(f.code) != Repair::impossible, ErrorCode::not_repairable,
                                "{}: cannot be repaired: {}", f.code, f.text);
      findings_[std::string(module_of(f.tensor))].insert(f.code);
      if (repair_of(f.code) == Repair::rewritten && told.insert(f.code).second)
        change(f.code, f.tensor,
               f.code.find("index") != std::string::npos ? "the index is written anew"
                                                         : "the configuration is written anew");
    }
  }

  bool found(const LogicalTensor& t, std::string_view code) const {
    const auto it = findings_.find(t.module());
    return it != findings_.end() && it->second.contains(std::string(code));
  }

  void drop_orphans() {
    for (std::size_t i = model_.tensors.size(); i-- > 0;) {
      const LogicalTensor& t = model_.tensors[i];
      if (!t.is_plain() || !found(t, "orphan-scale")) continue;
      const std::string weight = t.name.substr(0, t.name.rfind('.')) + ".weight",
                        stack = t.name.substr(0, t.name.rfind("_weight_scale"));
      const bool plain = std::ranges::any_of(model_.tensors, [&](const LogicalTensor& other) {
        return other.name == weight || (other.name == stack && other.name != t.name);
      });
      require<UnsupportedError>(plain, ErrorCode::not_repairable,
                                "orphan-scale: cannot be repaired: {}: the codes are lost",
                                t.data.describe());
      change("orphan-scale", t.name, "left out: its weight is not quantized");
      model_.tensors.erase(model_.tensors.begin() + static_cast<std::ptrdiff_t>(i));
      model_.file_of.erase(model_.file_of.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void fix_order() {
    for (LogicalTensor& t : model_.tensors) {
      if (!t.is_nvfp4()) continue;
      const bool tiles = options_.scales_swizzled || found(t, "swizzled-scales");
      const bool nibbles = options_.high_nibble_first || found(t, "nibble-order");
      if (!tiles && !nibbles) continue;
      require<UnsupportedError>(!tiles || !t.transposed,
                                "{}: a stack [experts, in, out], which no one stores in tiles",
                                t.data.describe());
      WeightNames& names = names_.emplace_back(*t.names);
      if (tiles) names.arrangement.scales = ScaleLayout::tiled_128x4;
      names.arrangement.high_nibble_first = nibbles;
      const std::int64_t expected =
          scale_bytes(names.arrangement.scales, t.outputs(), t.depth() / kBlock);
      require<UnsupportedError>(
          static_cast<std::int64_t>(t.scales.info->bytes) == expected * t.matrices(),
          "{}: {} bytes, 128x4 tiles need {}", t.scales.describe(), t.scales.info->bytes, expected);
      t.names = &names;
      if (tiles) change("swizzled-scales", t.module(), "block scales taken out of 128x4 tiles");
      if (nibbles) change("nibble-order", t.module(), "nibbles of each byte exchanged");
    }
  }

  void fix_sense_and_signs() {
    for (LogicalTensor& t : model_.tensors) {
      if (!t.is_nvfp4()) continue;
      if (found(t, "global-scale-sense")) {
        for (const std::size_t i : wrong_senses(t)) {
          std::swap(t.globals[i].multiplier, t.globals[i].divisor);
          change("global-scale-sense", t.module(),
                 fmt::format("global scale: the reciprocal, multiplier {:.6g}",
                             t.globals[i].multiplier));
        }
      }
      if (found(t, "scale-negative")) {
        t.correction.clear_signs = true;
        change("scale-negative", t.module(), "signs of block scales cleared");
      }
    }
  }

  void group() {
    for (LogicalTensor& t : model_.tensors) {
      if (!t.is_nvfp4()) continue;
      const bool many = t.globals.size() > 1 || t.inputs.size() > 1;
      for (const char* code :
           {"fused-globals", "fused-globals-far", "fused-input-scales", "input-scale-invalid"})
        require<UnsupportedError>(
            !many || !found(t, code), ErrorCode::not_repairable,
            "{}: cannot be repaired: {}: a stack with scales for each matrix; "
            "hint: nvfp4 convert takes it apart",
            code, t.data.describe());
      groups_[rules_.key(t.module())].push_back(&t);
      if (!t.weights_only && !t.inputs.empty() && is_valid(t.inputs[0])) inputs_[&t] = t.inputs[0];
    }
  }

  const LogicalTensor* source_of(const LogicalTensor& t) const {
    const LogicalTensor* found = source_ ? source_->find(t.name) : nullptr;
    const bool usable = found != nullptr && found->shape.size() == 2 && !found->is_four_bits() &&
                        (!found->is_plain() || is_float(found->data.info->dtype));
    return usable ? found : nullptr;
  }

  void refuse_others() const {
    for (const LogicalTensor& t : model_.tensors) {
      require<UnsupportedError>(t.is_nvfp4() || !found(t, "scale-negative"),
                                ErrorCode::not_repairable,
                                "scale-negative: cannot be repaired: {}: no sign of FP8 is known "
                                "to be wrong",
                                t.scales ? t.scales.describe() : t.data.describe());
      for (const FindingKind& kind : finding_kinds())
        require<UnsupportedError>(kind.repair != Repair::from_source || t.is_nvfp4() ||
                                      !found(t, kind.code) ||
                                      (t.is_plain() && kind.code == "far-from-source"),
                                  ErrorCode::not_repairable,
                                  "{}: cannot be repaired: {}: {}, and only NVFP4 weights are "
                                  "quantized again",
                                  kind.code, t.data.describe(), t.form_name());
    }
  }

  /// Quantizes weights of the source. Partners are quantized together, since they share a new
  /// scale.
  void quantize_again() {
    for (auto& [key, members] : groups_) {
      std::string code;
      for (const LogicalTensor* t : members) {
        for (const FindingKind& kind : finding_kinds())
          if (kind.repair == Repair::from_source && found(*t, kind.code)) code = kind.code;
        if (code.empty() && found(*t, "fused-globals") && source_of(*members[0]) != nullptr)
          code = "fused-globals";
      }
      if (code.empty()) continue;
      for (LogicalTensor* t : members) {
        const LogicalTensor* source = source_of(*t);
        require<UnsupportedError>(
            source != nullptr, ErrorCode::not_repairable,
            "{}: {} cannot be repaired without its weights{}", code, t->module(),
            source_ ? ", and --source has no such matrix" : "; hint: --source gives them");
        const auto input = inputs_.find(t);
        const std::optional<GlobalScale> kept =
            input == inputs_.end() ? std::nullopt : std::optional(input->second);
        change(code, t->module(), "quantized again from the source");
        const bool weights_only = t->weights_only;
        *t = *source;
        t->weights_only = weights_only;
        t->correction.requantize = true;
        t->correction.input = kept;
      }
    }
  }

  void fix_inputs() {
    InputAmax amaxes;
    if (options_.input_amax)
      amaxes = InputAmax(read_model_text(*options_.input_amax), options_.input_amax->string(),
                         transform_.match_budget);
    std::map<std::string, GlobalScale> of_kind;  // largest input scale of a layer's experts
    for (const auto& [t, input] : inputs_) {
      const auto [it, fresh] =
          of_kind.try_emplace(without_expert_number(rules_.key(t->module())), input);
      if (!fresh && input.multiplier > it->second.multiplier) it->second = input;
    }
    for (auto& [key, members] : groups_) {
      std::optional<GlobalScale> largest;
      for (const LogicalTensor* t : members) {
        const auto input = inputs_.find(t);
        if (input == inputs_.end()) continue;
        if (!largest || input->second.multiplier > largest->multiplier) largest = input->second;
      }
      std::string from = "that of its partners";
      if (!largest) std::tie(largest, from) = supply(key, members, of_kind, amaxes);
      for (LogicalTensor* t : members) {
        if (t->weights_only) continue;
        const auto old = inputs_.find(t);
        const bool has = old != inputs_.end();
        if (has && old->second.multiplier == largest->multiplier) continue;
        t->correction.input = largest;
        change(has ? "fused-input-scales" : "missing-input-scale", t->module(),
               fmt::format("input scale {:.6g} (as a multiplier), {}", largest->multiplier, from));
      }
    }
  }

  std::pair<std::optional<GlobalScale>, std::string> supply(
      const std::string& key, const std::vector<LogicalTensor*>& members,
      const std::map<std::string, GlobalScale>& of_kind, InputAmax& amaxes) const {
    const auto kind = of_kind.find(without_expert_number(key));
    if (kind != of_kind.end()) return {kind->second, "the largest of the other experts"};
    float amax = 0;
    for (const LogicalTensor* t : members) amax = std::max(amax, amaxes.find(t->module()));
    if (amax > 0) return {GlobalScale::from_amax(amax, Quantizer::max), "by --input-amax"};
    return {GlobalScale{}, "as nobody measured activations"};
  }

  void make_globals_equal() {
    for (auto& [key, members] : groups_) {
      const LogicalTensor* largest = members[0];
      for (const LogicalTensor* t : members)
        if (t->is_nvfp4() && t->globals[0].multiplier > largest->globals[0].multiplier) largest = t;
      for (LogicalTensor* t : members) {
        if (!t->is_nvfp4()) break;  // All members were quantized again.
        const float own = t->globals[0].multiplier, all = largest->globals[0].multiplier;
        if (own == all) continue;
        t->correction.global = largest->globals[0];
        change("fused-globals", t->module(),
               fmt::format("global scale {:.6g} becomes {:.6g}, that of {}; block scales times "
                           "{:.6g}, rounded",
                           own, all, largest->module(), own / all));
      }
    }
  }

  /// Returns a text that distinguishes repairs of the same input with other options.
  std::string choices() const {
    std::string text = options_.source ? "from a source; " : "";
    if (options_.scales_swizzled) text += "scales in tiles; ";
    if (options_.high_nibble_first) text += "high nibble first; ";
    std::uint64_t hash = fingerprint(text);
    for (const RepairChange& c : report_.changes)
      for (const std::string& part : {c.code, c.tensor, c.text})
        hash = fingerprint(fmt::format("{} {}", part.size(), part), hash);
    return fmt::format("{}changes {:016x}", text, hash);
  }

  QuantizeReport write() try {
    // A faulty weight must not prevent the repair of the checkpoint.
    transform_.allow.decode = true;
    static_cast<RunOptions&>(transform_) = options_;
    transform_.task = TransformOptions::Task::convert;
    transform_.chosen = chosen_method(transform_, "mse");
    transform_.variant = choices();
    Plan plan = make_plan(model_, transform_);
    const std::unique_ptr<Output> output = make_output(model_, plan, transform_);
    return write_plan(plan, transform_, run_, *output);
  } catch (const std::filesystem::filesystem_error& e) {
    throw_io_error(e);
  }

  void add_losses() {
    std::map<std::string, double> loss;
    for (const TensorReport& t : report_.written.tensors)
      if (t.measured && t.squared_norm > 0)
        loss[std::string(module_of(t.name))] = std::sqrt(t.squared_error / t.squared_norm);
    for (RepairChange& c : report_.changes)
      if (const auto it = loss.find(c.tensor); it != loss.end()) c.loss = it->second;
  }

  const RepairOptions& options_;
  RunContext run_;
  RepairReport report_;
  ModelFolder model_;
  std::optional<CheckpointReader> source_;
  TransformOptions transform_;
  FuseRules rules_;
  std::deque<WeightNames> names_;  ///< names with other arrangements than the format's
  std::map<std::string, std::set<std::string>> findings_;  ///< codes of each module
  std::map<std::string, std::vector<LogicalTensor*>> groups_;
  /// Only scales that are positive and finite.
  std::map<const LogicalTensor*, GlobalScale> inputs_;
};

}  // namespace

RepairReport repair_checkpoint(const RepairOptions& options) { return Repairer(options).run(); }

}  // namespace nvfp4
