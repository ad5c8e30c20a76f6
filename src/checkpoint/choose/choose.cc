#include "checkpoint/choose/choose.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "checkpoint/families/experts.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/plan/steps.h"
#include "checkpoint/write/write_plan.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// An output that discards everything.
class Nothing final : public Output {
 public:
  using Output::Output;
  std::unique_ptr<ShardWriter> open_shard(std::size_t) const override {
    struct Writer : ShardWriter {
      void write(std::size_t, std::uint64_t, std::span<const std::byte>) override {}
      void commit() override {}
    };
    return std::make_unique<Writer>();
  }
};

constexpr std::array kForms = {Action::nvfp4, Action::fp8, Action::fp8_channel, Action::keep,
                               Action::w4a16};
constexpr std::size_t kNvfp4 = 0, kFp8 = 1, kFp8Channel = 2, kKeep = 3, kW4A16 = 4;
/// All multiplications of a forward pass, in the unit of Alternative::slow.
constexpr double kAllSlow = 0x1p40;

/// A trial run: its plan and the outcomes of all weights.
struct Trial {
  Plan plan;
  std::vector<Outcome> outcomes;
};

Trial tried(const ModelFolder& model, TransformOptions options, Action action) {
  if (action != Action::nvfp4)
    options.layers = std::make_shared<const Recipe>(parse_recipe(
        fmt::format("rules:\n- kind: [attention, mlp, experts, shared_experts, linear]\n"
                    "  action: {}\n",
                    action_name(action)),
        "a trial"));
  options.release_device = false;
  options.weigh_errors = options.statistics.has_value();
  Trial trial;
  trial.plan = make_plan(model, options);
  Nothing nowhere(trial.plan.shards.size());
  trial.outcomes = write_shards(trial.plan, options, nowhere, [] {}).outcomes;
  return trial;
}

/// A layer whose parts must get one format.
struct Layer {
  std::string pattern;  ///< pattern of its experts
  std::vector<std::string> modules;
  double multiplications = 0;  ///< of a forward pass, for each token of the statistics
  double input_error = 0;      ///< error if the inputs are quantized
  std::array<Alternative, kForms.size()> forms = {};
};

class Chooser {
 public:
  Chooser(const ModelFolder& model, const TransformOptions& options)
      : model_(model), options_(options) {
    const CheckpointFormat& format = checkpoint_format(options.format);
    const bool measured = options.statistics || options.input_amax;
    const Action eight = measured ? Action::fp8 : Action::fp8_channel;
    has_fp8_ = format.fp8_tensors != nullptr &&
               std::ranges::none_of(model.tensors, &LogicalTensor::is_four_bits) &&
               !format.fp8_tensors(fp8_module(eight, "m"), kBlock, kBlock).empty();
    eight_ = eight;
  }

  ChosenLayers run() {
    const bool weighs = options_.bits || options_.size;
    Trial four;
    if (weighs)
      four = tried(model_, options_, Action::nvfp4);
    else
      four.plan = make_plan(model_, options_);
    if (weighs) weigh(four.plan);
    std::map<std::string, std::size_t> layer_of;
    std::map<std::size_t, std::size_t> of_tensor;
    std::uint64_t elements = 0;
    for (const Unit& unit : four.plan.units) {
      if (!unit.as<QuantizeWork>()) continue;
      const std::string experts = expert_layer_of(unit.slice.module);
      const std::string key = experts.empty() ? fmt::format("#{}", unit.group) : experts;
      const auto [it, fresh] = layer_of.try_emplace(key, layers_.size());
      if (fresh) layers_.emplace_back();
      Layer& layer = layers_[it->second];
      if (experts.empty())
        layer.modules.push_back(unit.slice.module);
      else
        layer.pattern = experts + ".*";
      const auto n = static_cast<std::uint64_t>(unit.slice.rows * unit.slice.cols);
      elements += n;
      of_tensor.emplace(unit.tensor, it->second);
      layer.forms[kKeep].bytes += 2 * n;
      if (options_.w4a4) add_inputs(layer, four.plan, unit);
    }
    require<ValueError>(!layers_.empty(),
                        "{}: no weight is quantized, so there is no format to choose",
                        model_.root.string());
    if (options_.w4a4) require_inputs();
    if (!weighs) {
      choice_.recipe = recipe(elements, 0);
      return std::move(choice_);
    }
    std::map<std::string_view, std::size_t> by_name;
    for (const auto& [t, layer] : of_tensor) {
      by_name[four.plan.tensors[t].name] = layer;
      add(layers_[layer].forms[kNvfp4], four, t);
    }
    std::uint64_t rest = overhead(four.plan);
    for (std::size_t t = 0; t < four.plan.tensors.size(); ++t)
      if (!of_tensor.contains(t)) rest += four.plan.tensors[t].bytes_after;
    if (has_fp8_) {
      const Trial eight = tried(model_, options_, eight_);
      for (std::size_t t = 0; t < eight.plan.tensors.size(); ++t) {
        const auto it = by_name.find(eight.plan.tensors[t].name);
        if (it == by_name.end()) continue;
        add(layers_[it->second].forms[eight_ == Action::fp8 ? kFp8 : kFp8Channel], eight, t);
      }
    }
    choice_.recipe = recipe(elements, rest);
    return std::move(choice_);
  }

 private:
  /// Sets the error that is minimized, and the sensitivity of each tensor if all have one.
  void weigh(const Plan& plan) {
    choice_.error_of = plan.statistics == nullptr ? "weights" : "outputs";
    if (plan.statistics == nullptr) return;
    std::size_t missing = 0, all = 0;
    std::string_view first;
    for (const Unit& unit : plan.units) {
      if (!unit.as<QuantizeWork>()) continue;
      const InputStatistics* s = plan.statistics->find(unit.slice.module);
      const bool has = s != nullptr && s->sensitivity > 0;
      if (has) sensitivity_.emplace(plan.tensors[unit.tensor].name, s->sensitivity);
      if (!has && missing++ == 0) first = unit.slice.module;
      ++all;
    }
    if (missing == 0) {
      choice_.error_of = "last hidden state";
      return;
    }
    require<ValueError>(!options_.w4a4, ErrorCode::statistics,
                        "w4a4 = {}: {} has no sensitivity of {} of {} weights: {}{}; hint: nvfp4 "
                        "calibrate writes it",
                        options_.w4a4.value_or(0), options_.statistics->string(), missing, all,
                        printable(first), missing > 1 ? ", ..." : "");
    sensitivity_.clear();
    choice_.warnings.push_back(fmt::format(
        "{}: has no sensitivity of {} of {} weights: layers are chosen by the errors of their "
        "outputs: {}{}",
        options_.statistics->string(), missing, all, printable(first), missing > 1 ? ", ..." : ""));
  }

  /// Adds the multiplications of a unit and the error of quantized inputs.
  void add_inputs(Layer& layer, const Plan& plan, const Unit& unit) {
    const InputStatistics* s = plan.statistics->find(unit.slice.module);
    ++inputs_;
    if (s == nullptr || s->input_sensitivity == 0) {
      if (without_inputs_++ == 0) first_without_ = unit.slice.module;
      return;
    }
    const double n = static_cast<double>(unit.slice.rows * unit.slice.cols) * s->count;
    layer.multiplications += n;
    multiplications_ += n;
    // The members of a layer were measured together.
    layer.input_error = std::max(layer.input_error, s->input_sensitivity);
  }

  void require_inputs() const {
    require<ValueError>(without_inputs_ == 0, ErrorCode::statistics,
                        "w4a4 = {}: {} has no input sensitivity of {} of {} weights: {}{}; hint: "
                        "nvfp4 calibrate writes it",
                        options_.w4a4.value_or(0), options_.statistics->string(), without_inputs_,
                        inputs_, printable(first_without_), without_inputs_ > 1 ? ", ..." : "");
    require<ValueError>(multiplications_ > 0 && std::isfinite(multiplications_),
                        ErrorCode::statistics,
                        "w4a4 = {}: {} has no counts of tokens; hint: nvfp4 calibrate writes them",
                        options_.w4a4.value_or(0), options_.statistics->string());
  }

  void add(Alternative& to, const Trial& trial, std::size_t t) const {
    to.bytes += trial.plan.tensors[t].bytes_after;
    to.error += error_of(trial, t);
  }

  double error_of(const Trial& trial, std::size_t t) const {
    const Outcome& outcome = trial.outcomes[t];
    if (trial.plan.statistics == nullptr) return outcome.error.squared_error;
    const auto it = sensitivity_.find(trial.plan.tensors[t].name);
    return outcome.weighted_error * (it == sensitivity_.end() ? 1 : it->second);
  }

  /// Returns the bytes of headers, of texts, and of the copied files.
  std::uint64_t overhead(const Plan& plan) const {
    constexpr std::uint64_t kOfTensor = 192, kOfShard = 4096, kListed = 128;
    std::uint64_t bytes = 0;
    for (const PlannedShard& shard : plan.shards)
      bytes += kOfShard + kOfTensor * shard.specs.size();
    std::error_code error;
    for (const auto& file : model_.others) {
      const auto size = std::filesystem::file_size(model_.root / file, error);
      if (!error) bytes += size + kListed;
    }
    return bytes;
  }

  /// Returns the numbers of the forms that a layer can get.
  std::vector<std::size_t> possible_forms() const {
    std::vector<std::size_t> forms = {kNvfp4};
    if (options_.w4a4) forms.push_back(kW4A16);
    if (!options_.bits && !options_.size) return forms;
    forms.push_back(kKeep);
    if (has_fp8_) forms.push_back(eight_ == Action::fp8 ? kFp8 : kFp8Channel);
    return forms;
  }

  /// Sets the error of W4A4 inputs, and the slow multiplications of the other forms. Without
  /// another budget these are the bytes.
  void add_slow(Layer& layer) const {
    auto& forms = layer.forms;
    forms[kW4A16] = forms[kNvfp4];
    forms[kNvfp4].error += layer.input_error;
    const auto slow =
        static_cast<std::uint64_t>(std::floor(layer.multiplications / multiplications_ * kAllSlow));
    for (std::size_t f = 0; f < forms.size(); ++f)
      (options_.bits || options_.size ? forms[f].slow : forms[f].bytes) += f == kNvfp4 ? 0 : slow;
  }

  /// Returns the budget of `bits` or `size`. `least`: the smallest number of bytes.
  std::uint64_t byte_budget(std::uint64_t least, std::uint64_t elements, std::uint64_t rest) const {
    if (options_.bits) {
      require<ValueError>(bits_of(least, elements) <= *options_.bits,
                          "bits = {}: the least is {:.3f}", *options_.bits,
                          bits_of(least, elements));
      return static_cast<std::uint64_t>(*options_.bits * static_cast<double>(elements) / 8);
    }
    require<ValueError>(least + rest <= *options_.size,
                        "size = {}: the least is {} bytes, {} of them not quantized",
                        *options_.size, least + rest, rest);
    return *options_.size - rest;
  }

  static double bits_of(std::uint64_t bytes, std::uint64_t elements) {
    return 8 * static_cast<double>(bytes) / static_cast<double>(elements);
  }

  std::shared_ptr<const Recipe> recipe(std::uint64_t elements, std::uint64_t rest) {
    const bool by_bytes = options_.bits || options_.size;
    const std::vector<std::size_t> forms = possible_forms();
    std::vector<Alternatives> alternatives;
    for (Layer& layer : layers_) {
      if (options_.w4a4) add_slow(layer);
      Alternatives& all = alternatives.emplace_back();
      for (const std::size_t f : forms) all.push_back(layer.forms[f]);
    }
    const std::uint64_t least = least_bytes(alternatives);
    Budget budget;
    const auto slow =
        static_cast<std::uint64_t>(std::llround((1 - options_.w4a4.value_or(0)) * kAllSlow));
    budget.bytes = by_bytes ? byte_budget(least, elements, rest) : slow;
    if (by_bytes && options_.w4a4) budget.slow = slow;
    std::uint64_t most = 0;
    for (const Alternatives& all : alternatives)
      most += std::ranges::max_element(all, {}, &Alternative::bytes)->bytes;
    constexpr int kPoints = 24;
    for (int i = 0; i <= kPoints; ++i) {
      Budget part = budget;
      part.bytes = least + (most - least) * static_cast<unsigned>(i) / kPoints;
      const Allocation at = allocate(alternatives, part);
      choice_.curve.push_back(
          {by_bytes ? bits_of(at.bytes, elements) : 100 * static_cast<double>(at.bytes) / kAllSlow,
           at.error});
    }
    choice_.curve_over = by_bytes ? "bits" : "w4a16";
    if (!by_bytes) choice_.error_of = "last hidden state";
    const Allocation best = allocate_exactly(alternatives, budget);
    if (!best.exact)
      choice_.warnings.push_back(fmt::format(
          "{}: the search ended after {} partial choices: the error is {:.6g}, the least cannot be "
          "below {:.6g}",
          options_.bits   ? "bits"
          : options_.size ? "size"
                          : "w4a4",
          kMostNodes, best.error, best.bound));
    std::array<Json, kForms.size()> names;
    for (Json& list : names) list = Json::array();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      Json& list = names[forms[best.chosen[l]]];
      if (!layers_[l].pattern.empty()) list.push_back(layers_[l].pattern);
      for (const std::string& module : layers_[l].modules) list.push_back(module);
    }
    std::string text = fmt::format("about: {}\nrules:", Json(about(best, elements)).dump());
    bool any = false;
    for (std::size_t f = 1; f < kForms.size(); ++f) {
      if (names[f].empty()) continue;
      any = true;
      text += fmt::format("\n- action: {}\n  match:", action_name(kForms[f]));
      for (const Json& name : names[f]) text += fmt::format("\n  - {}", dump_line(name));
    }
    text += any ? "\n" : " []\n";
    return std::make_shared<const Recipe>(parse_recipe(text, "the choice"));
  }

  std::string about(const Allocation& best, std::uint64_t elements) const {
    std::string text;
    const double bits = bits_of(best.bytes, elements);
    if (options_.bits) text = fmt::format("{} bits a weight, {:.3f} used", *options_.bits, bits);
    if (options_.size) text = fmt::format("{} bytes, {:.3f} bits a weight", *options_.size, bits);
    if (options_.w4a4)
      text +=
          fmt::format("{}{} of the multiplications in W4A4, {:.3f} used", text.empty() ? "" : "; ",
                      *options_.w4a4,
                      1 - static_cast<double>(text.empty() ? best.bytes : best.slow) / kAllSlow);
    return "chosen for " + text;
  }

  const ModelFolder& model_;
  const TransformOptions& options_;
  bool has_fp8_ = false;
  Action eight_ = Action::fp8;
  std::vector<Layer> layers_;
  // Keyed by tensor; empty if it is not used.
  std::map<std::string, double, std::less<>> sensitivity_;
  double multiplications_ = 0;
  std::size_t inputs_ = 0, without_inputs_ = 0;  ///< numbers of units
  std::string first_without_;
  ChosenLayers choice_;
};

}  // namespace

ChosenLayers choose_recipe(const ModelFolder& model, const TransformOptions& options) {
  return Chooser(model, options).run();
}

}  // namespace nvfp4::checkpoint
