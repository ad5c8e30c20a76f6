#include "checkpoint/families/select.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <span>

#include "checkpoint/families/family.h"
#include "checkpoint/families/kept_names.h"
#include "checkpoint/match/pattern.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

bool one_of(std::string_view x, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

/// Returns the first rule that fits, or null.
const NameRule* find_rule(std::span<const NameRule> rules, Parts module) {
  const auto rule = std::ranges::find_if(
      rules, [&](const NameRule& r) { return matches_one(r.names, r.where, module); });
  return rule == rules.end() ? nullptr : &*rule;
}

/// Returns the first rule that fits, with the rules of the families first. Returns null also for a
/// rule with an empty kind: the module is ordinary.
const NameRule* find_rule(const std::vector<const Family*>& families,
                          std::span<const NameRule> Family::*own, std::span<const NameRule> any,
                          Parts module) {
  const NameRule* rule = nullptr;
  for (const Family* family : families)
    if (rule == nullptr) rule = find_rule(family->*own, module);
  if (rule == nullptr) rule = find_rule(any, module);
  return rule == nullptr || rule->kind.empty() ? nullptr : rule;
}

constexpr std::string_view kMtp = "mtp* *nextn*";

/// Reports whether the module joins hidden state and embedding in front of a multi-token prediction
/// block.
bool is_mtp_joint(Parts module) {
  return one_of(module.back(), {"fc", "input_proj", "e_proj", "h_proj"}) &&
         matches_one(kMtp, Where::any, module);
}

bool is_expert(Parts module) {
  for (std::size_t i = 0; i + 1 < module.size(); ++i)
    if (module[i] == "experts" && is_number(module[i + 1])) return true;
  return false;
}

constexpr const char* kConv1dReason = "Conv1D stores [in, out]";

/// Reports whether the matrix is a Conv1D. Outside GPT-2's families its shape decides, and a square
/// matrix is none.
bool is_conv1d(const safetensors::TensorInfo& t, Parts module,
               const std::vector<const Family*>& families) {
  if (t.shape.size() != 2 || !matches_one(kConv1dNames, Where::last, module)) return false;
  if (std::ranges::any_of(families, &Family::conv1d)) return true;
  const std::string_view last = module.back();
  return (last == "c_attn" && t.shape[1] == 3 * t.shape[0]) ||
         (last == "c_fc" && t.shape[1] == 4 * t.shape[0]);
}

/// Reports whether the matrix has few rows and is outside the repeated layers. Such a matrix is not
/// fused and small.
bool is_thin_head(const safetensors::TensorInfo& t, Parts module) {
  return t.shape.size() == 2 && t.shape[0] < kBlock && std::ranges::none_of(module, is_number);
}

constexpr const char* kMtpReason = "multi-token prediction, which loaders build unquantized";

Selection keep(std::string_view kind, std::string reason, bool linear = true) {
  return {
      .quantize = false, .kind = std::string(kind), .reason = std::move(reason), .linear = linear};
}

Selection keep(const NameRule& rule) {
  return keep(rule.kind, std::string(rule.reason), rule.linear);
}

/// Limit of columns, because whole rows are quantized. No layer is that wide, but the header of a
/// sparse file can claim it.
constexpr std::int64_t kMostColumns = 1 << 24;

/// Returns why the tensor can never become an NVFP4 matrix, or "". The depth of stacked experts is
/// not checked, because it depends on their orientation.
std::string obstacle(const safetensors::TensorInfo& t, bool stacked) {
  if (!stacked && !t.name.ends_with(".weight")) return "not the .weight of a module";
  if (t.shape.size() != 2 && !stacked) return fmt::format("{}-D", t.shape.size());
  if (!is_float(t.dtype))
    return fmt::format("dtype {} is not BF16, F16 or F32", safetensors::dtype_name(t.dtype));
  if (std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end()) return "empty";
  if (t.shape.back() > kMostColumns)
    return fmt::format("{} columns, more than {}", t.shape.back(), kMostColumns);
  if (!stacked && t.shape[1] % kBlock != 0)
    return fmt::format("{} columns, not a multiple of {}", t.shape[1], kBlock);
  return {};
}

/// Tensors that stay FP32 in any model: they decide by small differences, or are exponents.
constexpr std::string_view kAlways[] = {
    "A_log",       "A",
    "D",           "dt_bias",
    "time_decay",  "time_first",
    "sinks",       "e_score_correction_bias",
    "expert_bias", "balancing_biases",
    "moe_statics", "latent_mean",
    "latent_std",
};

/// Reports whether the name contains these parts, as consecutive whole parts.
bool has_parts(std::string_view name, std::string_view parts) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", parts)) != std::string::npos;
}

/// Reports whether a pattern "x", "x*", "*x" or "*x*" matches one part.
bool part_matches(std::string_view pattern, std::string_view part) {
  const bool from = pattern.starts_with('*');
  if (from) pattern.remove_prefix(1);
  const bool to = pattern.ends_with('*');
  if (to) pattern.remove_suffix(1);
  if (from && to) return part.find(pattern) != std::string_view::npos;
  return from ? part.ends_with(pattern) : to ? part.starts_with(pattern) : part == pattern;
}

/// Reports whether the parts of a pattern match as many parts of a name.
bool parts_match(std::string_view pattern, Parts parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = pattern.find('.');
    if (!part_matches(pattern.substr(0, dot), parts[i])) return false;
    pattern.remove_prefix(std::min(dot, pattern.size() - 1) + 1);
  }
  return true;
}

bool matches(std::string_view pattern, Where where, Parts parts) {
  if (where == Where::last || where == Where::whole) {
    const std::size_t n = static_cast<std::size_t>(std::ranges::count(pattern, '.')) + 1;
    return (where == Where::last ? n <= parts.size() : n == parts.size()) &&
           parts_match(pattern, parts.last(n));
  }
  if (where == Where::first) parts = parts.first(1);
  if (where == Where::last3) parts = parts.last(std::min<std::size_t>(3, parts.size()));
  return std::ranges::any_of(parts, [&](std::string_view p) { return part_matches(pattern, p); });
}

}  // namespace

std::optional<std::int64_t> layer_number(std::string_view module) {
  const std::vector<std::string_view> parts = split_name(module);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    if (parts[i] == "layers" && is_number(parts[i + 1])) {
      const std::string_view digits = parts[i + 1];
      std::int64_t number = 0;
      const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
      return error == std::errc{} ? number : std::numeric_limits<std::int64_t>::max();
    }
  return std::nullopt;
}

bool is_latent_projection(std::string_view name) {
  return matches_one(kLatentProjections, Where::last, split_name(module_of(name)));
}

bool is_decay_projection(std::string_view name) {
  return matches_one(kDecays, Where::last, split_name(module_of(name)));
}

bool is_router(std::string_view module, const std::vector<const Family*>& families) {
  const NameRule* rule = find_rule(families, &Family::modules, kModules, split_name(module));
  return rule != nullptr && rule->kind == "router";
}

bool is_float(safetensors::DType dtype) {
  using enum safetensors::DType;
  return dtype == bf16 || dtype == f16 || dtype == f32;
}

DType matrix_dtype(safetensors::DType dtype) {
  return dtype == safetensors::DType::f32    ? DType::f32
         : dtype == safetensors::DType::bf16 ? DType::bf16
                                             : DType::f16;
}

std::string row_obstacle(std::int64_t rows) {
  return rows % kBlock == 0 ? "" : fmt::format("{} rows, not a multiple of {}", rows, kBlock);
}

Selection classify(const safetensors::TensorInfo& t, const std::vector<const Family*>& families) {
  const std::vector<std::string_view> module = split_name(module_of(t.name));
  const std::size_t rank = t.shape.size();
  const bool is_weight = t.name.ends_with(".weight");
  if (!is_weight && (module.back() == "bias" || module.back().ends_with("_bias")))
    return keep("bias", "biases stay in their dtype", false);
  if (const NameRule* rule = find_rule(families, &Family::towers, kTowers, module))
    return keep(*rule);
  if (const NameRule* rule = find_rule({}, &Family::towers, kNorms, module))
    return keep(rule->kind, std::string(rule->reason), rank == 2);
  const bool has_rows = std::ranges::any_of(
      families, [](const Family* family) { return family->stacks == Stacks::rows; });
  const bool stacked =
      rank == 3 && (matches_one(kStackedExperts, Where::last, module) ||
                    (has_rows && matches_one(kMoeStackedExperts, Where::last, module)));
  if (rank == 3 && !stacked && matches_one(kOtherStackedExperts, Where::last, module))
    return keep("experts", "a stack of experts that no loader reads in 4 bits under this name");
  if (rank > 2 && !stacked)
    return keep("convolution", fmt::format("{}-D, neither a matrix nor stacked experts", rank));
  if (matches_one(kConvolutions, Where::last, module)) return keep("convolution", "convolution");
  if (is_conv1d(t, module, families)) return keep("convolution", kConv1dReason);
  if (is_mtp_joint(module)) return keep("mtp", std::string(kPlainReason));
  if (const NameRule* rule = find_rule(families, &Family::modules, kModules, module))
    return keep(*rule);
  if (rank < 2) return keep("vector", "scalars and vectors stay in their dtype", false);
  const std::string kind = stacked ? "stacked experts" : is_expert(module) ? "expert" : "linear";
  if (const std::string why = obstacle(t, stacked); !why.empty()) {
    const bool linear = is_weight || stacked || matches_one("experts", Where::any, module);
    return keep(is_weight || stacked ? kind : "other", why, linear);
  }
  if (matches_one(kMtp, Where::any, module)) return keep("mtp", kMtpReason);
  if (!stacked && is_thin_head(t, module))
    return keep("head", fmt::format("{} rows, not enough to gain by it", t.shape[0]));
  return {.quantize = true, .kind = kind, .reason = {}};
}

Selection classify(const safetensors::TensorInfo& t, std::string_view model_type) {
  return classify(t, families_of(model_type));
}

Selector::Selector(const std::vector<std::string>& ignore, const std::vector<std::string>& include,
                   std::string_view model_type, std::optional<std::int64_t> first_mtp_layer,
                   SharedBudget budget)
    : budget_(std::move(budget)),
      ignore_(ignore, budget_),
      include_(include, budget_),
      ignore_used_(ignore.size()),
      include_used_(include.size()),
      forced_(include.size()),
      families_(families_of(model_type)),
      first_mtp_layer_(first_mtp_layer) {}

Selection Selector::select(const safetensors::TensorInfo& tensor) {
  Selection s = classify(tensor, families_);
  if (s.quantize && first_mtp_layer_ &&
      layer_number(module_of(tensor.name)).value_or(0) >= *first_mtp_layer_)
    s = keep("mtp", kMtpReason);
  const std::vector<std::size_t> ignoring = ignore_.matching(tensor.name);
  for (const std::size_t i : ignoring) {
    ignore_used_[i] = true;
    if (s.quantize) {
      s.reason = "--ignore " + ignore_.text(i);
      s.ignored = true;
    }
    s.quantize = false;
  }
  if (!ignoring.empty()) return s;
  for (const std::size_t i : include_.matching(tensor.name)) {
    const std::string why = obstacle_of(tensor, s);
    require<ValueError>(why.empty() || !include_.is_exact(i), ErrorCode::not_quantizable,
                        "--include {}: {} cannot be quantized: {}", include_.text(i), tensor.name,
                        why);
    if (!why.empty()) continue;
    include_used_[i] = true;
    if (!s.quantize) forced_[i].push_back(fmt::format("{} ({})", module_of(tensor.name), s.kind));
    s.quantize = s.included = true;
    s.reason.clear();
  }
  return s;
}

std::string Selector::obstacle_of(const safetensors::TensorInfo& tensor, const Selection& s) const {
  return is_conv1d(tensor, split_name(module_of(tensor.name)), families_)
             ? kConv1dReason
             : obstacle(tensor, s.kind == "stacked experts");
}

bool Selector::ignores(const std::string& name) const { return !ignore_.matching(name).empty(); }

std::vector<std::string> Selector::warnings() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < ignore_.size(); ++i)
    if (!ignore_used_[i])
      lines.push_back(fmt::format("--ignore {}: matches no tensor", ignore_.text(i)));
  for (std::size_t i = 0; i < include_.size(); ++i)
    if (!include_used_[i])
      lines.push_back(
          fmt::format("--include {}: matches no tensor that can be quantized", include_.text(i)));
  for (std::size_t i = 0; i < include_.size(); ++i) {
    const auto& names = forced_[i];
    if (names.empty()) continue;
    const std::string more = names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1);
    lines.push_back(fmt::format("--include {}: most loaders build {}{} unquantized",
                                include_.text(i), names[0], more));
  }
  return lines;
}

bool stays_f32(std::string_view tensor, std::span<const std::string> model_types) {
  const auto named = [&](std::string_view name) { return has_parts(tensor, name); };
  if (std::ranges::any_of(kAlways, named)) return true;
  const std::vector<const Family*> families = families_of(model_types);
  constexpr std::string_view kBias = ".bias";
  if (tensor.ends_with(kBias) &&
      is_router(tensor.substr(0, tensor.size() - kBias.size()), families))
    return true;
  for (const Family* family : families) {
    if (family->f32.empty()) continue;
    if (std::ranges::any_of(split_name(family->f32, ' '), named)) return true;
  }
  return false;
}

bool matches_one(std::string_view patterns, Where where, Parts parts) {
  while (!patterns.empty()) {
    const std::size_t space = std::min(patterns.find(' '), patterns.size());
    if (matches(patterns.substr(0, space), where, parts)) return true;
    patterns.remove_prefix(std::min(space + 1, patterns.size()));
  }
  return false;
}

bool is_model_type(std::string_view patterns, std::string_view model_type) {
  return matches_one(patterns, Where::whole, Parts(&model_type, 1));
}

}  // namespace nvfp4::checkpoint
