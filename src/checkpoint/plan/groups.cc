#include "checkpoint/plan/groups.h"

#include <algorithm>
#include <cfloat>
#include <map>
#include <set>

#include "checkpoint/families/expert_layers.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/plan/input_amax.h"
#include "checkpoint/plan/metadata.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The activation amax if none is known. It makes input_scale 1.
constexpr float kDefaultInputAmax = 2688.0f;
/// The activation amax of an FP8 weight if none is known. It makes input_scale 1.
constexpr float kDefaultFp8Amax = E4M3::kMax;

class Grouper {
 public:
  Grouper(Plan& plan, const TransformOptions& options, std::span<const KeptModule> kept,
          std::span<const std::string> model_types)
      : plan_(plan), options_(options), kept_(kept), rules_(options.fuse, model_types) {}

  void run() {
    if (options_.input_amax) read_amaxes();
    std::map<std::string, std::size_t> group_of;
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      Unit& unit = plan_.units[u];
      const std::string key = unit.work == Work::decode ? fmt::format("#{}", u)
                              : unit.stack_rows > 0 ? std::string(plan_.tensors[unit.tensor].name)
                                                    : rules_.key(unit.slice.module);
      const auto [it, fresh] = group_of.try_emplace(key, plan_.groups.size());
      if (fresh) plan_.groups.emplace_back().work = unit.work;
      unit.group = it->second;
      rules_.see(unit.slice.module);
      Group& group = plan_.groups[unit.group];
      group.units.push_back(u);
      // Partners with two kinds of work share a global scale only if all of them are quantized.
      if (group.work != unit.work) group.work = Work::quantize;
      if (!unit.input) group.input_amax = std::max(group.input_amax, input_amax(unit));
    }
    round_transcoded();
    if (options_.task != TransformOptions::Task::decode) {
      for (Group& group : plan_.groups) share_moved(group);
      inherit_input_scales();
    }
    if (options_.task == TransformOptions::Task::quantize) warn_of_moved();
    warn_of_lost_inputs();
    if (!amax_file_.empty() && options_.scheme == Scheme::nvfp4) fill_experts();
    warn_of_unmeasured();
    for (Group& group : plan_.groups)
      if (group.input_amax == 0)
        group.input_amax = group.work == Work::fp8 ? kDefaultFp8Amax : kDefaultInputAmax;
    warn(amaxes_.warnings());
    warn(rules_.warnings());
    if (options_.task != TransformOptions::Task::decode) warn_of_partly_kept(group_of);
  }

 private:
  void warn(const std::vector<std::string>& lines) {
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  }

  /// Returns the activation amax of a unit, or 0 if none is known. The user's file has priority
  /// over statistics.
  float input_amax(const Unit& unit) {
    const std::string& module = unit.slice.module;
    float given = amaxes_.find(module);
    if (constexpr std::string_view kGate = "gate_proj";
        unit.stack_rows > 0 && module.ends_with(kGate))
      given =
          std::max(given, amaxes_.find(module.substr(0, module.size() - kGate.size()) + "up_proj"));
    if (given != 0) return given;
    const auto usable = [](float amax) { return amax / kDefaultInputAmax >= FLT_MIN ? amax : 0; };
    if (unit.statistics != nullptr) {
      const float seen = usable(unit.statistics->amax);
      if (seen != 0 && amax_file_.empty()) amax_file_ = options_.statistics->string();
      return seen;
    }
    return unit.input_global == kNone
               ? 0
               : usable(plan_.tensors[unit.tensor].source->fp8_input_amax().value_or(0));
  }

  void read_amaxes() {
    const std::string text = read_model_text(*options_.input_amax);
    plan_.input_amax_fingerprint = fingerprint(text);
    amax_file_ = options_.input_amax->string();
    amaxes_ = InputAmax(text, options_.input_amax->string(), options_.match_budget);
    if (options_.scheme == Scheme::nvfp4a16)
      plan_.warnings.push_back("--input-amax: no effect, scheme nvfp4a16 has no input scales");
  }

  void warn_of_partly_kept(const std::map<std::string, std::size_t>& group_of) {
    // The texts, by the last component of the name.
    std::map<std::string_view, std::pair<std::string, std::size_t>> texts;
    for (const KeptModule& kept : kept_) {
      const std::string key = rules_.key(kept.name);
      // An expert layer has a warning of its own.
      if (!expert_layer_of(kept.name).empty()) continue;
      if (is_decay_projection(kept.name)) continue;
      if (const auto it = group_of.find(key); it != group_of.end() && kept.linear)
        if (auto& [text, count] = texts[split_name(kept.name).back()]; ++count == 1)
          text =
              fmt::format("{} is kept but {} is quantized: loaders that fuse them refuse that",
                          kept.name, plan_.units[plan_.groups[it->second].units[0]].slice.module);
    }
    for (const auto& [name, found] : texts) {
      const auto& [text, count] = found;
      plan_.warnings.push_back(
          count == 1 ? text : fmt::format("{}; {} more modules named {}", text, count - 1, name));
    }
  }

  /// Changes transcoded units to the work of their group. MXFP4 keeps its values only if the whole
  /// group is MXFP4; another global scale does not fit its exponents.
  void round_transcoded() {
    std::size_t rounded = 0;
    const Unit* first = nullptr;
    for (Unit& unit : plan_.units) {
      const Work work = plan_.groups[unit.group].work;
      if (unit.work != Work::transcode || work == Work::transcode) continue;
      unit.work = work;
      plan_.tensors[unit.tensor].action = action_of(work);
      if (rounded++ == 0) first = &unit;
    }
    if (rounded > 0)
      plan_.warnings.push_back(
          fmt::format("{} MXFP4 weights are rounded, as weights that loaders fuse with them are "
                      "not MXFP4, and all of them need one global scale: {}{}",
                      rounded, first->slice.module, rounded > 1 ? ", ..." : ""));
  }

  static void take_larger(std::optional<GlobalScale>& largest, const GlobalScale& scale) {
    if (!largest || scale.multiplier > largest->multiplier) largest = scale;
  }

  /// Gives encoded units the global scale of copied weights in their group, if it is large enough.
  /// All units of the group get one input scale.
  void share_moved(Group& group) {
    std::optional<GlobalScale> global, input;
    bool encodes = false, differ = false;
    for (const std::size_t u : group.units) {
      const Unit& unit = plan_.units[u];
      if (unit.input) take_larger(input, *unit.input);
      encodes |= unit.work != Work::move;
      if (unit.work != Work::move) continue;
      differ |= global && global->multiplier != unit.moved.global.multiplier;
      take_larger(global, unit.moved.global);
    }
    if (!global) return;
    if (encodes) group.moved_global = global;
    if (encodes && input && group.input_amax != 0)
      take_larger(input, GlobalScale::from_amax(group.input_amax, Quantizer::max));
    for (const std::size_t u : group.units)
      if (input && (encodes || !plan_.units[u].input)) plan_.units[u].input = input;
    if (encodes || !differ) return;
    if (unequal_++ == 0) first_unequal_ = group.units[0];
  }

  /// Gives new experts the largest input scale of the same projections in other experts.
  void inherit_input_scales() {
    std::map<std::string, std::optional<GlobalScale>> of_kind;
    const auto kind_of = [&](const Unit& unit) {
      return without_expert_number(rules_.key(unit.slice.module));
    };
    for (const Unit& unit : plan_.units)
      if (unit.input) take_larger(of_kind[kind_of(unit)], *unit.input);
    for (const Group& group : plan_.groups) {
      const auto it = of_kind.find(kind_of(plan_.units[group.units[0]]));
      if (group.input_amax != 0 || it == of_kind.end() || group.work == Work::fp8) continue;
      for (const std::size_t u : group.units)
        if (!plan_.units[u].input) plan_.units[u].input = it->second;
    }
  }

  void warn_of_moved() {
    std::size_t moves = 0, without = 0;
    const Unit* first = nullptr;
    for (const Unit& unit : plan_.units) {
      if (unit.work != Work::move) continue;
      ++moves;
      if (unit.input || unit.input_global == kNone || options_.input_amax) continue;
      ++without;
      if (first == nullptr) first = &unit;
    }
    if (moves > 0 && moves == plan_.units.size())
      plan_.warnings.push_back(
          "nothing was left to quantize: every weight chosen is NVFP4 in the input");
    if (without > 0)
      plan_.warnings.push_back(
          fmt::format("{} of {} weights that are NVFP4 in the input have no input scale and get 1, "
                      "--scheme nvfp4a16 leaves activations alone: {}{}",
                      without, moves, first->slice.module, without > 1 ? ", ..." : ""));
    if (unequal_ > 0)
      plan_.warnings.push_back(fmt::format(
          "{} weights that loaders fuse have global scales that differ in the input, "
          "nvfp4 repair makes them equal: {}{}",
          unequal_, plan_.units[first_unequal_].slice.module, unequal_ > 1 ? ", ..." : ""));
  }

  /// Warns of FP8 weights without an activation amax. E4M3 alone lacks the range of NVFP4's two
  /// scales.
  void warn_of_unmeasured() {
    std::size_t count = 0;
    const Unit* first = nullptr;
    for (const Unit& unit : plan_.units) {
      const bool unknown = plan_.groups[unit.group].input_amax == 0 && !unit.input;
      if (unit.work != Work::fp8 || unit.input_global == kNone || !unknown) continue;
      if (count++ == 0) first = &unit;
    }
    if (count > 0)
      plan_.warnings.push_back(fmt::format(
          "nothing says how large the inputs of {} FP8 weights are, their input scale is 1; "
          "--statistics or --input-amax gives others, fp8_channel needs none: {}{}",
          count, first->slice.module, count > 1 ? ", ..." : ""));
  }

  /// Warns of FP8 input scales that the output cannot hold, or that are not finite.
  void warn_of_lost_inputs() {
    std::set<const LogicalTensor*> lost;
    const LogicalTensor* first = nullptr;
    for (const PlannedTensor& tensor : plan_.tensors) {
      const LogicalTensor& t = *tensor.source;
      if (t.encoding() != Encoding::fp8) continue;
      const bool has_place =
          tensor.units > 0 && plan_.units[tensor.first_unit].input_global != kNone;
      const bool taken = tensor.copy != kNone || (has_place && t.fp8_input_amax());
      if (!t.left_out && (!t.input || taken)) continue;
      if (lost.insert(&t).second && first == nullptr) first = &t;
    }
    if (first != nullptr)
      plan_.warnings.push_back(fmt::format("the input scales of {} FP8 weights are left out: {}{}",
                                           lost.size(), first->module(),
                                           lost.size() > 1 ? ", ..." : ""));
  }

  /// Gives an expert without an amax the largest one of its layer's other experts, for each
  /// projection. Calibration data may not reach every expert. Warns of modules that still have no
  /// amax.
  void fill_experts() {
    std::map<std::string, float> largest;
    const auto kind_of = [&](const Group& group) {
      return without_expert_number(rules_.key(plan_.units[group.units[0]].slice.module));
    };
    for (const Group& group : plan_.groups) {
      float& amax = largest[kind_of(group)];
      amax = std::max(amax, group.input_amax);
    }
    std::size_t missing = 0, first = kNone;
    for (Group& group : plan_.groups) {
      if (group.input_amax == 0) group.input_amax = largest[kind_of(group)];
      if (group.input_amax != 0 || plan_.units[group.units[0]].input) continue;
      missing += group.units.size();
      first = std::min(first, group.units[0]);
    }
    if (missing > 0)
      plan_.warnings.push_back(fmt::format("{} of {} modules have no entry in {}, {} is used: {}{}",
                                           missing, plan_.units.size(), amax_file_,
                                           kDefaultInputAmax, plan_.units[first].slice.module,
                                           missing > 1 ? ", ..." : ""));
  }

  Plan& plan_;
  const TransformOptions& options_;
  std::span<const KeptModule> kept_;
  FuseRules rules_;
  InputAmax amaxes_;
  std::string amax_file_;  ///< the source of the amaxes, for messages; empty if there is none
  std::size_t unequal_ = 0, first_unequal_ = 0;  ///< copied groups whose global scales differ
};

}  // namespace

void make_groups(Plan& plan, const TransformOptions& options, std::span<const KeptModule> kept,
                 std::span<const std::string> model_types) {
  Grouper(plan, options, kept, model_types).run();
}

}  // namespace nvfp4::checkpoint
