#include "checkpoint/output/gguf_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "checkpoint/formats/format.h"
#include "checkpoint/gguf/config.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

using checkpoint::kNone;
using safetensors::DType;

/// A planned tensor. It becomes a tensor of the file or, for an expert, a part of a stack.
struct Member {
  std::string model_name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;
  Place place;
  std::optional<Split> split = {};  ///< its rows; null: all rows of the planned tensor
  std::size_t spec = 0, scales = kNone, global = kNone, input = kNone;
  DType dtype = DType::u8;  ///< dtype of a tensor that is not NVFP4
};

std::string file_of(const checkpoint::ModelFolder& model) {
  const auto& path = model.files.size() == 1 ? model.files[0].path() : model.root;
  return printable(path.string(), 4096);
}

constexpr std::string_view kPrediction = "multi-token prediction";

/// Reports whether llama.cpp reads the tensor only as F32. Source: conversion/base.py,
/// prepare_tensors(): "Most of the codebase that takes in 1D tensors or norms only handles F32
/// tensors".
bool must_be_f32(const Place& place, std::size_t dimensions) {
  const std::string& name = place.file_name;
  return dimensions <= 1 || name.ends_with("_norm.weight") || !name.ends_with(".weight") ||
         name.find(".ffn_gate_inp") != std::string::npos || name.ends_with(".ssm_conv1d.weight") ||
         name.ends_with(".indexer.proj.weight");
}

class Maker {
 public:
  Maker(const checkpoint::Plan& plan, const checkpoint::ModelFolder& model,
        const Architecture& architecture, const Json& config)
      : plan_(plan), file_(file_of(model)), architecture_(architecture), config_(config) {}

  Layout run() {
    const auto& specs = plan_.shards.front().specs;
    layout_.targets.resize(specs.size());
    std::vector<bool> seen(specs.size());
    for (const checkpoint::Unit& unit : plan_.units) {
      const std::optional<std::uint32_t> type = type_of(unit);
      if (!type) continue;
      const checkpoint::Places& p = unit.places;
      for (const std::size_t i : {p.codes, p.scales, p.weight_global, p.input_global})
        if (i != kNone) seen[i] = true;
      add_unit(unit, *type);
    }
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (!seen[i]) add_plain(i);
    for (auto& [key, members] : members_) place(members);
    warn_of_dropped();
    return std::move(layout_);
  }

 private:
  /// Returns the type of a matrix in blocks. Null for others.
  static std::optional<std::uint32_t> type_of(const checkpoint::Unit& unit) {
    if (unit.as<checkpoint::Nvfp4Work>() != nullptr) return kNvfp4;
    if (unit.as<checkpoint::Q8Work>() != nullptr) return kQ8_0;
    if (unit.as<checkpoint::Mxfp4Work>() != nullptr) return kMxfp4;
    return std::nullopt;
  }

  /// Returns the places of a tensor in the file. Empty if the tensor is left out.
  std::vector<Place> places_for(const std::string& name) {
    if (name.ends_with(".rotary_emb.inv_freq")) return {};  // computed from the config
    if (const std::string_view what = left_out(name, config_); !what.empty())
      return drop(name, what);
    std::vector<Place> places =
        gguf::places_of(architecture_, as_layer(architecture_, name, main_layers(config_)));
    require<UnsupportedError>(!places.empty(), ErrorCode::no_gguf_name,
                              "{}: tensor '{}': has no name in GGUF's '{}'", file_, printable(name),
                              architecture_.name);
    return places;
  }

  std::vector<Place> drop(const std::string& name, std::string_view what) {
    require<UnsupportedError>(
        plan_.drop,
        "{}: tensor '{}': of {}, for which llama.cpp has no place; hint: --allow "
        "drop leaves such tensors out",
        file_, printable(name), what);
    dropped_[std::string(what)] += 1;
    return {};
  }

  void add_unit(const checkpoint::Unit& unit, std::uint32_t type) {
    const std::string name = unit.slice.module + ".weight";
    for (Place& place : places_for(name))
      add({name,
           find_type(type),
           {unit.slice.rows, unit.slice.cols},
           std::move(place),
           {},
           unit.places.codes,
           unit.places.scales,
           unit.places.weight_global,
           unit.places.input_global});
  }

  void add_plain(std::size_t i) {
    const safetensors::TensorSpec spec = plan_.shards.front().specs[i];
    for (Place& place : places_for(spec.name)) add_plain(i, spec, std::move(place));
  }

  void add_plain(std::size_t i, const safetensors::TensorSpec& spec, Place place) {
    std::uint32_t type = kF32;
    switch (spec.dtype) {
      case DType::f32:
        break;
      case DType::bf16:
        type = kBF16;
        break;
      case DType::f16:
        type = kF16;
        break;
      default:
        throw UnsupportedError(fmt::format("{}: tensor '{}': {}, must be BF16, F16 or F32", file_,
                                           printable(spec.name),
                                           safetensors::dtype_name(spec.dtype)));
    }
    require<UnsupportedError>(spec.shape.size() <= kMaxDimensions,
                              "{}: tensor '{}': {} dimensions, at most {}", file_,
                              printable(spec.name), spec.shape.size(), kMaxDimensions);
    if (must_be_f32(place, spec.shape.size())) type = kF32;
    std::vector<std::int64_t> shape =
        file_shape(place.form, spec.shape, integer_of(config_, {"n_groups"}, 0));
    Member member{spec.name, find_type(type), std::move(shape), std::move(place), {}, i};
    member.dtype = spec.dtype;
    add(std::move(member));
  }

  void add(Member member) {
    if (is_split(member.place.heads)) take_rows(member);
    // Tensors outside the layers come first, then those of each layer.
    members_[{member.place.layer, member.place.file_name}].push_back(std::move(member));
  }

  /// Returns the rows of a member that the tensor of the file has. Null for sizes that do not fit.
  std::optional<Split> split_of(const Member& m) const {
    return is_latent(m.place.heads) ? latent_heads().split(m.place.heads)
                                    : linear_heads().split(m.place.heads);
  }

  void take_rows(Member& m) const {
    m.split = split_of(m);
    const bool fits = m.split && m.shape.size() == 2 && m.shape[0] == m.split->model_rows();
    if (!fits) {
      const LinearHeads linear = linear_heads();
      const LatentHeads latent = latent_heads();
      throw FormatError(fmt::format(
          "{}: tensor '{}': [{}], must have the rows of {}", file_, printable(m.model_name),
          fmt::join(m.shape, ", "),
          is_latent(m.place.heads)
              ? fmt::format("num_attention_heads = {}, qk_nope_head_dim = {} and v_head_dim = {}",
                            latent.heads, latent.key, latent.value)
              : fmt::format("linear_num_value_heads = {} and linear_num_key_heads = {}",
                            linear.values, linear.keys)));
    }
    m.shape[0] = m.split->rows();
  }

  LatentHeads latent_heads() const {
    return {integer_of(config_, {"num_attention_heads"}, 0),
            integer_of(config_, {"kv_lora_rank"}, 0), integer_of(config_, {"qk_nope_head_dim"}, 0),
            integer_of(config_, {"v_head_dim"}, 0)};
  }

  LinearHeads linear_heads() const {
    return {integer_of(config_, {"linear_num_key_heads"}, 0),
            integer_of(config_, {"linear_num_value_heads"}, 0),
            integer_of(config_, {"linear_key_head_dim"}, 0)};
  }

  /// Adds one tensor of the file, made of these members, and its global scales.
  void place(std::vector<Member>& members) {
    const Member& first = members.front();
    const std::size_t tensor = layout_.tensors.size();
    const bool stack = first.place.expert >= 0;
    if (stack) {
      std::ranges::sort(members, {}, [](const Member& m) { return m.place.expert; });
      check_experts(members);
    } else {
      require<UnsupportedError>(members.size() == 1, "{}: tensor '{}': is there twice", file_,
                                printable(first.model_name));
    }
    std::vector<std::int64_t> shape = first.shape;
    const auto one = tensor_bytes(*first.type, shape);
    if (stack) shape.insert(shape.begin(), static_cast<std::int64_t>(members.size()));
    require<UnsupportedError>(one && tensor_bytes(*first.type, shape),
                              "{}: tensor '{}': [{}] is too large", file_,
                              printable(first.model_name), fmt::join(shape, ", "));
    if (first.split) shape = first.split->shape(shape.back());
    layout_.tensors.push_back({first.place.file_name, first.type, std::move(shape)});
    note_widened(first);
    for (std::size_t i = 0; i < members.size(); ++i) place(members[i], tensor, *one * i);
    if (first.type->id != kNvfp4) return;
    const std::string module = first.place.file_name.substr(0, first.place.file_name.size() - 7);
    add_scales(members, module + ".scale", &Member::global);
    add_scales(members, module + ".input_scale", &Member::input);
  }

  void note_widened(const Member& member) {
    if (member.type->id != kF32) return;
    if (member.dtype == DType::bf16) layout_.bf16.push_back(member.place.file_name);
    if (member.dtype == DType::f16) layout_.f16.push_back(member.place.file_name);
  }

  void check_experts(const std::vector<Member>& members) const {
    const Member& first = members.front();
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Member& m = members[i];
      require<UnsupportedError>(m.place.expert == static_cast<std::int64_t>(i),
                                "{}: tensor '{}': expert {} follows {} others, must be {}", file_,
                                printable(m.model_name), m.place.expert, i, i);
      require<UnsupportedError>(
          m.type == first.type && m.shape == first.shape && m.dtype == first.dtype &&
              (m.input == kNone) == (first.input == kNone),
          "{}: tensor '{}': {} [{}], but '{}' is {} [{}]; GGUF stacks them", file_,
          printable(m.model_name), m.type->name, fmt::join(m.shape, ", "),
          printable(first.model_name), first.type->name, fmt::join(first.shape, ", "));
    }
  }

  void place(const Member& m, std::size_t tensor, std::uint64_t begin) {
    using Kind = Target::Kind;
    Target target;
    target.tensor = tensor;
    target.begin = begin;
    target.change = m.place.change;
    target.rows = m.place.heads == Heads::none || m.split ? rotary_rows(m) : value_heads(m);
    if (m.place.heads == Heads::columns) std::swap(target.rows, target.columns);
    target.cols = m.shape.empty() ? 1 : m.shape.back();
    const auto rows = static_cast<std::uint64_t>(m.shape.empty() ? 1 : m.shape[0]);
    if (m.type->id == kNvfp4) {
      target.kind = Kind::codes;
      target.row_bytes = static_cast<std::uint64_t>(m.shape.back()) / 2;
      layout_.targets[m.scales] = {{.kind = Kind::scales}};
    } else {
      const bool widened = m.type->id == kF32 && m.dtype != DType::f32;
      target.kind = !widened ? m.place.change == Change::none ? Kind::copy : Kind::f32
                    : m.dtype == DType::bf16 ? Kind::widen_bf16
                                             : Kind::widen_f16;
      if (rows != 0) target.row_bytes = *tensor_bytes(*m.type, m.shape) / rows / (widened ? 2 : 1);
    }
    std::vector<Target>& targets = layout_.targets[m.spec];
    if (!m.split) return targets.push_back(target);
    target.transposed = m.split->transposed;
    for (const Run& run : m.split->runs) {
      target.run = run;
      targets.push_back(target);
    }
  }

  /// Returns the order of the heads of values. Columns of a head must be whole blocks of the type.
  Order value_heads(const Member& m) const {
    const LinearHeads heads = linear_heads();
    const bool by_columns = m.place.heads == Heads::columns;
    const std::int64_t size = m.shape.empty() ? 0 : by_columns ? m.shape.back() : m.shape[0];
    const std::optional<Order> order = heads.order(m.place.heads, size);
    require<FormatError>(order.has_value(),
                         "{}: tensor '{}': {} {}, which are not of linear_num_value_heads = {} and "
                         "linear_num_key_heads = {}",
                         file_, printable(m.model_name), size, by_columns ? "columns" : "rows",
                         heads.values, heads.keys);
    require<UnsupportedError>(!by_columns || !order->moves() || order->d % m.type->block == 0,
                              "{}: tensor '{}': heads of {} columns, must be a multiple of {} for "
                              "{}; hint: --ignore '*.out_proj' keeps such weights",
                              file_, printable(m.model_name), order->d, m.type->block,
                              m.type->name);
    return *order;
  }

  Order rotary_rows(const Member& m) const {
    if (!architecture_.interleaves || (!m.place.query && !m.place.key)) return {};
    const std::int64_t all = integer_of(config_, {"num_attention_heads"}, 0);
    const std::int64_t heads =
        m.place.key ? integer_of(config_, {"num_key_value_heads"}, all) : all;
    const std::int64_t rows = m.shape.empty() ? 0 : m.shape[0];
    require<FormatError>(heads > 0,
                         "{}: config.json has no 'num_attention_heads', by which rows of "
                         "'{}' are put in llama.cpp's order",
                         file_, printable(m.model_name));
    require<UnsupportedError>(heads > 0 && heads <= rows / 2 && rows % (2 * heads) == 0,
                              "{}: tensor '{}': {} rows, must be an even number for each of {} "
                              "heads",
                              file_, printable(m.model_name), rows, heads);
    return rotary_order(rows / heads);
  }

  void add_scales(const std::vector<Member>& members, const std::string& name,
                  std::size_t Member::*which) {
    if (members.front().*which == kNone) return;
    const std::size_t tensor = layout_.tensors.size();
    layout_.tensors.push_back({name, find_type(kF32), {static_cast<std::int64_t>(members.size())}});
    for (std::size_t i = 0; i < members.size(); ++i) {
      layout_.targets[members[i].*which] = {
          {.kind = Target::Kind::copy, .tensor = tensor, .begin = 4 * i, .row_bytes = 4}};
    }
  }

  void warn_of_dropped() {
    for (const auto& [what, count] : dropped_)
      layout_.warnings.push_back(fmt::format(
          "{} tensors of {} are left out: llama.cpp has no place for them", count, what));
  }

  const checkpoint::Plan& plan_;
  std::string file_;
  const Architecture& architecture_;
  const Json& config_;
  std::map<std::tuple<std::int64_t, std::string>, std::vector<Member>> members_;
  std::map<std::string, int> dropped_;
  Layout layout_;
};

}  // namespace

std::string_view left_out(std::string_view name, const Json& config) {
  if (const auto scale = checkpoint::cache_scale(name);  // a gate may also have a k_scale
      scale && scale->attention.ends_with("attn"))
    return "the key and value cache";
  const Architecture* architecture = architecture_of(config);
  const std::string_view prefix = architecture == nullptr ? "model." : architecture->prefix;
  if (name.starts_with("mtp.") || name.starts_with("model.mtp."))
    return architecture != nullptr && as_layer(*architecture, std::string(name), 0) != name
               ? ""
               : kPrediction;
  const bool is_tower = name.starts_with("model.") ? !name.starts_with(prefix)
                                                   : name.starts_with("vision_tower.") ||
                                                         name.starts_with("multi_modal_projector.");
  if (is_tower) return "towers for images and sound";
  // Without a number of layers, no layer is beyond the last. The missing key is another error.
  const std::int64_t layers = main_layers(config);
  const std::string in_layers = std::string(prefix) + "layers.";
  const bool predicts = architecture != nullptr && architecture->predicts;
  if (layers > 0 && !predicts && layer_of(name, in_layers).value_or(0) >= layers)
    return kPrediction;
  return {};
}

Layout make_layout(const checkpoint::Plan& plan, const checkpoint::ModelFolder& model,
                   const Architecture& architecture, const Json& config) {
  return Maker(plan, model, architecture, config).run();
}

}  // namespace nvfp4::gguf
