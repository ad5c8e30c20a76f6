#include "checkpoint/plan/plan.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/select.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/excludes.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "checkpoint/plan/steps.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using Task = TransformOptions::Task;
using safetensors::TensorInfo;

/// The limit of a name; no model has longer ones. A pattern's time can grow with its square.
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::string_view kDequantized = "dequantized";

class Planner {
 public:
  Planner(const ModelFolder& model, const TransformOptions& options)
      : model_(model),
        options_(options),
        format_(options.task == Task::decode ? nullptr : &checkpoint_format(options.format)),
        config_(model.config) {
    plan_.started = std::chrono::steady_clock::now();
    take_declared();
    if (format_ != nullptr && format_->keeper != nullptr) keeps_ = format_->keeper(config_);
    for (const LogicalTensor& t : model.tensors) {
      four_bits_ |= t.is_four_bits() || t.correction.requantize;  // a repair quantizes it again
      native_ |= t.is_four_bits() && t.names->is_native;
    }
    native_ |= declared_ && declared_->moe_algorithm == "NVFP4";
    native_ &=
        declared_ && declared_->method == "fp8" && format_ != nullptr && format_->keeps_native;
  }

  Plan run() {
    plan_.drop = options_.allow.drop;
    plan_.format = format_;
    plan_.method = options_.chosen.method;
    Selector selector(options_.ignore, options_.include,
                      config_.model_types.empty() ? "" : config_.model_types.front(),
                      config_.first_mtp_layer, options_.match_budget);
    RecipeChoice recipe(options_.layers.get(), config_.model_types);
    select(selector, recipe);
    plan_.statistics = statistics_of_run(options_, config_);
    if (plan_.statistics) plan_.statistics_fingerprint = plan_.statistics->fingerprint();
    cache_scales_ = CacheScales(model_.tensors, config_.model_types,
                                declares_cache(model_.declared, model_.hf_declared) ||
                                    (options_.layers && !options_.layers->kv_cache.empty()));
    if (!native_)
      cache_type_ = cache_type_of_output(model_, cache_scales_, options_, format_, declared_);
    caches_.emplace(model_, cache_scales_, plan_.statistics.get(), format_, cache_type_);
    narrows_ = options_.task == Task::quantize && !options_.keep_dtype && is_f32();
    // A copy to the same container loses nothing. Others need the configuration.
    if (format_ == nullptr || format_->name != model_.files.front().container()) {
      model_.files.front().require_config();
      warn(model_.warnings);
    }
    for (const auto& part : {selector.warnings(), recipe.warnings(), caches_->lost()}) warn(part);
    if (may_quantize()) warn(keep_whole_layers(recipe));
    stack_experts();
    plan_.rules = recipe.rules();
    plan_.tensors.reserve(model_.tensors.size());
    matrices_.emplace(plan_, options_, modules_, config_.model_types,
                      declared_ ? &*declared_ : nullptr);
    if (options_.task != Task::decode) {
      group();
      gather_stacks(candidates_, *matrices_);
    }
    if (format_ != nullptr && !format_->single_file.empty()) {
      add_shard(std::string(format_->single_file), 0, model_.files.size());
    } else {
      for (std::size_t f = 0; f < model_.files.size(); ++f)
        add_shard(model_.file_names[f], f, f + 1);
      plan_.index_name = model_.index_name;
    }
    matrices_->warn();
    keep_reciprocals(plan_);
    name_producer(plan_, config_, model_, options_);
    finish();
    return std::move(plan_);
  }

 private:
  struct Candidate {
    const LogicalTensor* tensor = nullptr;
    const TensorInfo* info = nullptr;  ///< the tensor as if it were plain
    Selection selection;
    EncodedTensor matrices;  ///< only if it is quantized
    bool is_lost = false;    ///< NVFP4, or MXFP4 of GGUF, that the format cannot hold as NVFP4
  };

  void warn(const std::vector<std::string>& lines) {
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  }

  /// Takes config.json's declaration first. It declares no cache but FP8; hf_quant_config may.
  void take_declared() {
    declared_ = model_.declared ? model_.declared : model_.hf_declared;
    if (!declared_) return;
    if (declared_->kv_cache.is_null() && model_.hf_declared)
      declared_->kv_cache = model_.hf_declared->kv_cache;
    declared_->budget = options_.match_budget;
  }

  /// Reports whether FP8 may become NVFP4: a conversion does so if no weight has four bits.
  bool may_quantize() const {
    return options_.task == Task::quantize || (options_.task == Task::convert && !four_bits_);
  }

  void select(Selector& selector, RecipeChoice& recipe) {
    candidates_.resize(model_.files.size());
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const LogicalTensor& t = model_.tensors[i];
      const std::string file = t.data.file->path().string();
      require<FormatError>(t.name.size() <= kMaxNameBytes,
                           "{}: a tensor name of {} bytes, at most {}", file, t.name.size(),
                           kMaxNameBytes);
      Candidate& c = candidates_[model_.file_of[i]].emplace_back();
      c.tensor = &t;
      c.info = t.is_plain() && !t.is_bare_fp8() ? t.data.info
                                                : &plain_infos_.emplace_back(t.plain_info());
      c.selection = selector.select(*c.info);
      recipe.apply(*c.info, selector, c.selection);
      if (t.correction.requantize) {
        c.selection.quantize = true;
        c.selection.reason.clear();
      } else if (native_ && !is_native_expert(t)) {
        c.selection.quantize = false;
        c.selection.reason = "DeepSeek-V4 has 4-bit experts, all else stays";
      } else if (options_.task == Task::quantize && t.is_nvfp4()) {
        c.selection.quantize = !selector.ignores(t.name) && !recipe.keeps(c.selection);
        require<UnsupportedError>(c.selection.quantize || !native_,
                                  "{}: NVFP4, and the configuration of DeepSeek-V4 has no plain "
                                  "experts; hint: --ignore must not name it",
                                  t.data.describe());
        if (c.selection.quantize) c.selection.reason = t.form_name() + " in the input";
      } else if (options_.task != Task::quantize && t.is_plain()) {
        c.selection.quantize = false;
        if (c.selection.reason.empty()) c.selection.reason = "not quantized in the input";
      } else if (options_.task == Task::decode || !may_quantize()) {  // FP8 beside four bits stays
        c.selection.quantize = options_.task == Task::convert && t.is_four_bits();
        c.selection.reason.clear();
      }
      if (!c.selection.quantize) continue;
      c.matrices.source = &t;
      c.matrices.action = recipe.action(c.selection);
      c.matrices.scheme = scheme_of(t, c.matrices.action);
      slice(c);
    }
  }

  /// Reports whether all quantized weights are FP32 and the output is a folder, with a dtype.
  bool is_f32() const {
    bool any = false, others = four_bits_ || !format_->single_file.empty() || format_->container;
    for (const std::deque<Candidate>& file : candidates_)
      for (const Candidate& c : file)
        if (c.selection.quantize) (c.info->dtype == safetensors::DType::f32 ? any : others) = true;
    return any && !others;
  }

  bool is_narrowed(const LogicalTensor& t) const {
    return narrows_ && t.data.info->dtype == safetensors::DType::f32 && t.elements() > 0 &&
           !stays_f32(t.name, config_.model_types) && !cache_scales_.find(t);
  }

  /// Returns the scheme of a weight that becomes or stays NVFP4.
  Scheme scheme_of(const LogicalTensor& t, Action action) const {
    const bool weights_only = action == Action::w4a16 || (options_.takes_scheme && t.weights_only);
    return weights_only ? Scheme::w4a16 : options_.scheme;
  }

  /// Reports whether this is a 4-bit expert of a decoder layer. MTP experts stay MXFP4.
  static bool is_native_expert(const LogicalTensor& t) {
    return t.is_four_bits() && !t.name.starts_with("mtp.");
  }

  void slice(Candidate& c) {
    const LogicalTensor& t = *c.tensor;
    const bool experts = c.selection.kind == "stacked experts";
    c.matrices.stays_stacked = experts && (options_.task == Task::quantize || t.is_nvfp4()) &&
                               format_ && !is_fp8(c.matrices.action) &&
                               keeps_stacks(*format_, config_, t);
    if (experts)
      c.matrices.slices = slices_of(t, model_.tensors, config_, c.matrices.stays_stacked);
    require<UnsupportedError>(!t.is_nvfp4() || t.shape.size() == 2 || experts,
                              "{}: a stack of {} matrices that are no experts, only matrices can "
                              "be converted",
                              t.data.describe(), t.matrices());
    const WeightSlice slice = c.matrices.slice(0);
    const std::int64_t cols = slice.cols;
    // NVFP4 weights are exempt where every other form would round them and is an error.
    const bool stays = t.is_nvfp4() && !(format_ != nullptr && format_->dequantizes_rest);
    const std::int64_t multiple = format_ == nullptr || stays ? kBlock : format_->columns;
    std::string reason =
        cols % multiple == 0 ? "" : fmt::format("{} columns, not a multiple of {}", cols, multiple);
    // Four-bit weights are exempt: dequantizing them would lose their codes.
    if (reason.empty() && !c.selection.included && !t.is_four_bits() && !t.correction.requantize)
      reason = row_obstacle(slice.rows);
    if (reason.empty() && keeps_ && !stays) reason = keeps_(slice.module);
    if (reason.empty()) return;
    c.selection.quantize = false;
    c.selection.reason = std::move(reason);
    c.is_lost = t.is_nvfp4() || (is_gguf() && t.encoding() == Encoding::mxfp4);
  }

  std::vector<std::string> keep_whole_layers(const RecipeChoice& recipe) {
    std::vector<Choice> choices, of_float;  // Four-bit weights stay quantized, as in slice().
    for (std::deque<Candidate>& file : candidates_)
      for (Candidate& c : file) {
        choices.push_back({c.info, &c.selection});
        if (!c.tensor->is_four_bits()) of_float.push_back(choices.back());
      }
    const FuseRules fused(options_.fuse, config_.model_types);
    recipe.require_whole(choices, fused);
    keep_fused_layers_whole(of_float, fused);
    return keep_expert_layers_whole(choices);
  }

  /// Reports whether an FP8 weight is copied.
  bool keeps_fp8(const Candidate& c) const {
    const LogicalTensor& t = *c.tensor;
    return t.encoding() == Encoding::fp8 && t.shape.size() == 2 && !t.correction.requantize &&
           t.added.empty() &&
           ((c.selection.quantize && is_fp8(c.matrices.action)) ||
            (options_.task == Task::convert && four_bits_)) &&
           format_->keeps_fp8 != nullptr && format_->keeps_fp8(t);
  }

  /// Groups the matrices that become NVFP4 or FP8, and lists the modules that stay.
  void group() {
    for (std::deque<Candidate>& file : candidates_)
      for (Candidate& c : file) {
        const bool is_copied = !c.tensor->is_plain() && keeps_fp8(c);
        if (!c.selection.quantize || is_copied) matrices_->leave(c.tensor->module());
        if (c.selection.quantize && !is_copied) {
          matrices_->group(c.matrices);
        } else if (const auto it = stack_of_.find(c.tensor); it != stack_of_.end()) {
          if (it->second->members[0] == c.tensor && it->second->shape.size() == 3)
            modules_.kept.push_back({it->second->name, true});
        } else if (c.tensor->is_plain() || (!native_ && !is_copied)) {
          if (auto kept = kept_module(*c.tensor, c.selection.linear))
            modules_.kept.push_back(std::move(*kept));
        } else if (!native_) {
          modules_.copied_fp8.push_back(c.tensor->module());
        }
      }
    matrices_->decide();
  }

  void add_shard(std::string name, std::size_t first_file, std::size_t end_file) {
    PlannedShard shard;
    shard.file = std::move(name);
    shard.metadata = metadata_of_output(model_.files[first_file].metadata());
    shard.first_tensor = plan_.tensors.size();
    const std::size_t first_unit = plan_.units.size();
    for (std::size_t f = first_file; f < end_file; ++f)
      for (; !candidates_[f].empty(); candidates_[f].pop_front())
        add_tensor(std::move(candidates_[f].front()), shard);
    caches_->add(first_file, end_file, shard);
    shard.tensors = plan_.tensors.size() - shard.first_tensor;
    sort_tensors(plan_, shard, first_unit);
    plan_.shards.push_back(std::move(shard));
  }

  bool is_left_out(const LogicalTensor& t) const {
    return format_->left_out != nullptr && !format_->left_out(t.name, config_).empty();
  }

  /// Records a weight that the format cannot hold: it loses precision.
  void lose(const Candidate& c) {
    const LogicalTensor& t = *c.tensor;
    if (options_.allow.drop && is_left_out(t)) return;
    require<UnsupportedError>(
        options_.allow.decode || format_->dequantizes_rest,
        "{}: {}, which {} cannot hold; hint: nvfp4 convert --allow decode makes such weights BF16",
        t.data.describe(), t.form_name(), format_->name);
    lost_.add(t, rest_of(c), c.selection.reason);
  }

  bool is_gguf() const { return format_ != nullptr && format_->container != nullptr; }
  bool splits_stack(const Candidate& c) const {
    return is_gguf() && (c.selection.kind == "stacked experts" || is_bias_stack(c.tensor->name));
  }

  /// Returns the form of a weight that the format cannot hold as NVFP4.
  Rest rest_of(const Candidate& c) const {
    const LogicalTensor& t = *c.tensor;
    const bool stays =
        is_gguf() && t.encoding() == Encoding::mxfp4 && t.added.empty() && !has_columns_of_keys(t);
    if (stays && (t.shape.size() == 2 || splits_stack(c))) return Rest::mxfp4;
    return options_.rest_is_q8_0 && fits_q8_0(t, splits_stack(c)) ? Rest::q8_0 : Rest::plain;
  }

  PlannedTensor& new_tensor(const Candidate& c) {
    PlannedTensor& tensor = plan_.tensors.emplace_back();
    tensor.source = c.tensor;
    tensor.name = c.tensor->name;
    tensor.shard = plan_.shards.size();
    tensor.kind = plan_.texts.keep(c.selection.kind);
    tensor.reason = plan_.texts.keep(c.selection.reason);
    tensor.bytes_before = c.tensor->bytes;
    return tensor;
  }

  /// Finds experts that become stacks: dequantized ones, and plain ones of a GGUF file.
  void stack_experts() {
    const bool singles = model_.files.front().container() == "gguf" && !is_gguf();
    if (options_.task != Task::decode && !singles) return;
    std::set<const LogicalTensor*> encoded;
    for (const std::deque<Candidate>& file : candidates_)
      for (const Candidate& c : file)
        if (c.selection.quantize) encoded.insert(c.tensor);
    stack_of_ = find_stacks(model_.tensors, config_, singles ? &encoded : nullptr);
  }

  void add_tensor(Candidate c, PlannedShard& shard) {
    const LogicalTensor& t = *c.tensor;
    if (caches_->leaves_out(t)) return;
    if (const auto it = stack_of_.find(&t); it != stack_of_.end()) {
      if (it->second->members[0] == &t) add_stack(plan_, shard, *it->second, options_.plain);
      return;
    }
    require<UnsupportedError>(t.added.empty() || !native_,
                              "{}: an adapter is not merged into FP8 of DeepSeek-V4",
                              t.data.describe());
    if (c.matrices.place != kNone) {
      new_tensor(c);
      matrices_->add(c.matrices, shard);
      return;
    }
    if (splits_stack(c) && t.is_stored() && !is_left_out(t)) {
      new_tensor(c).action = "kept";
      add_single_experts(plan_, shard, model_.tensors, config_, options_.plain);
    } else if (t.is_plain() && (is_narrowed(t) || !t.is_stored())) {
      new_tensor(c).action = t.is_stored() ? "cast" : t.added.empty() ? kDequantized : "merged";
      add_decoded(plan_, shard, options_.plain);
    } else if (t.is_plain()) {
      copy(c, t.data, t.data.info->name, shard);
    } else if (native_) {
      for (const StoredTensor& part : {t.data, t.scales, t.global, t.input})
        if (part) copy(c, part, part.info->name, shard);
    } else if (keeps_fp8(c)) {
      add_fp8(c, shard);
    } else {
      // A conversion of FP8 alone acts like `quantize`, which dequantizes excluded weights.
      const bool is_lost = options_.task == Task::convert ? !may_quantize() : c.is_lost;
      if (is_lost) lose(c);
      const Rest rest = is_lost ? rest_of(c) : Rest::plain;
      new_tensor(c).action = action_of(rest);
      if (splits_stack(c))
        add_single_experts(plan_, shard, model_.tensors, config_, options_.plain, rest);
      else if (rest != Rest::plain)
        add_blocks(plan_, shard, rest);
      else
        add_decoded(plan_, shard, options_.plain);
    }
  }

  /// Plans a copy. `name` must live as long as the plan.
  void copy(const Candidate& c, const StoredTensor& stored, std::string_view name,
            PlannedShard& shard) {
    PlannedTensor& tensor = new_tensor(c);
    tensor.stored = stored;
    tensor.name = name;
    tensor.action = "kept";
    tensor.copy = shard.specs.size();
    tensor.bytes_before = tensor.bytes_after = stored.info->bytes;
    safetensors::TensorSpec spec{std::string(name), stored.info->dtype, stored.info->shape};
    if (const auto scale = cache_scales_.find(*c.tensor)) rename_cache_scale(format_, *scale, spec);
    shard.specs.push_back(spec);
  }

  void add_fp8(Candidate& c, PlannedShard& shard) {
    const LogicalTensor& t = *c.tensor;
    c.selection.reason = "FP8 in the input";
    copy(c, t.data, t.data.info->name, shard);
    if (const auto size = static_cast<std::int64_t>(format_->fp8_marker_text.size()); size > 0) {
      plan_.tensors.back().marker = shard.specs.size();
      plan_.tensors.back().bytes_after += static_cast<std::uint64_t>(size);
      shard.specs.push_back(
          {t.module() + std::string(format_->names->marker), safetensors::DType::u8, {size}});
    }
    copy(c, t.scales, plan_.texts.keep(t.module() + ".weight_scale"), shard);
    if (t.input) copy(c, t.input, plan_.texts.keep(t.module() + ".input_scale"), shard);
    modules_.fp8.push_back(fp8_module(t));
  }

  void finish() {
    choose_scheme(plan_, modules_, options_.scheme);
    require<UnsupportedError>(
        options_.task != Task::convert || !modules_.quantized.empty() || !lost_.empty(),
        "{}: holds no quantized weight to convert; hint: nvfp4 quantize makes them",
        model_.root.string());
    for (const PlannedShard& shard : plan_.shards)
      for (std::size_t i = 0; i < shard.specs.size(); ++i) plan_.total_size += shard.specs.bytes(i);
    require_unique_names(plan_);
    if (modules_.quantized.empty() && modules_.fp8.empty() && options_.task == Task::quantize)
      plan_.warnings.push_back("no tensor is quantized");
    warn(warnings_of_single_experts(config_, modules_.quantized));
    if (narrows_) config_.text = with_f32_as_bf16(config_.text);
    if (options_.task == Task::decode)
      plan_.config_json =
          with_dtype(without_quantization_config(config_),
                     options_.plain == safetensors::DType::f16 ? "float16" : "bfloat16");
    else if (modules_.quantized.empty() && modules_.fp8.empty() && !native_)
      plan_.config_json = without_quantization_config(config_);
    else
      declare();
    plan_.params_json = params_with_quantization(model_.params, quantization_);
    if (format_ != nullptr) warn(lost_.warnings(format_->name));
    if (config_.text.empty() && !plan_.config_json.empty())
      plan_.warnings.push_back("the input has no config.json, the output gets a bare one");
  }

  void declare() {
    // The order of the input must have no influence.
    std::ranges::sort(modules_.kept, {}, &KeptModule::name);
    std::ranges::sort(modules_.quantized);
    std::ranges::sort(modules_.fp8, {}, &Fp8Module::name);
    std::ranges::sort(modules_.weights_only);
    require<UnsupportedError>(!native_ || plan_.weights_only == 0,
                              "W4A16 beside W4A4, which the configuration of DeepSeek-V4 cannot "
                              "say; hint: --scheme chooses one for all experts");
    std::vector<std::string> warnings;
    const ConfigFacts facts = {plan_.scheme,
                               modules_.kept,
                               modules_.quantized,
                               modules_.fp8,
                               modules_.weights_only,
                               cache_type_,
                               config_.model_types,
                               native_ ? &declared_->json : nullptr,
                               &warnings};
    if (format_->quantization_config) {
      require_plain_names(facts, printable(model_.root.string(), 4096));
      quantization_ = format_->quantization_config(facts);
    }
    plan_.config_json = quantization_.is_null() ? without_quantization_config(config_)
                                                : with_quantization_config(config_, quantization_,
                                                                           format_->config_alias);
    if (format_->hf_quant_config)
      if (const Json side = format_->hf_quant_config(facts, quantization_); !side.is_null())
        plan_.hf_quant_json = dump_pretty(side, 4) + "\n";
    if (config_.diffusers_class.empty()) warn(warnings);  // diffusers matches no substrings
    warn(caches_->warnings(options_.layers != nullptr && !options_.layers->kv_cache.empty()));
  }

  const ModelFolder& model_;
  const TransformOptions& options_;
  const CheckpointFormat* format_;  ///< null if nothing stays quantized
  ModelConfig config_;
  Json quantization_;  ///< the quantization_config of the output; null if there is none
  KeptReason keeps_;
  std::optional<Declared> declared_;
  bool native_ = false;     ///< DeepSeek-V4: only experts change, the configuration stays
  bool four_bits_ = false;  ///< something in the input is NVFP4 or MXFP4
  /// The candidates of each file, removed as they are planned.
  std::vector<std::deque<Candidate>> candidates_;
  std::deque<TensorInfo> plain_infos_;  ///< infos of tensors that are quantized in the input
  bool narrows_ = false;                ///< FP32 tensors that stay plain become BF16
  StackOf stack_of_;
  CacheScales cache_scales_;
  std::string cache_type_;  ///< the cache type of the output: "FP8", "NVFP4" or ""
  std::optional<PlannedCacheScales> caches_;
  Plan plan_;
  ListedModules modules_;
  std::optional<MatrixPlanner> matrices_;
  LostWeights lost_;
};

}  // namespace

Plan make_plan(const ModelFolder& model, const TransformOptions& options) {
  return Planner(model, options).run();
}

}  // namespace nvfp4::checkpoint
