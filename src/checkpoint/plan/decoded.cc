
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/families/experts.h"
#include "checkpoint/gguf/blocks.h"
#include "checkpoint/plan/steps.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// A projection of a single expert, and the stack that contains it.
struct Projection {
  std::string_view name, stack;
  std::size_t part, parts;
};
constexpr Projection kProjections[] = {
    {"gate_proj", "gate_up_proj", 0, 2},
    {"up_proj", "gate_up_proj", 1, 2},
    {"down_proj", "down_proj", 0, 1},
};
/// The biases of all experts of a layer, where gates and ups are one tensor.
constexpr std::string_view kBiases = ".experts.gate_up_proj_bias";
constexpr std::string_view kBiasParts[] = {"gate_proj_bias", "up_proj_bias"};

struct Member {
  std::string stack;
  std::size_t expert = 0;
  const Projection* projection = nullptr;
};

/// Returns the place of a weight in a stack: "a.experts.7.up_proj.weight" is up_proj of expert 7 of
/// "a.experts.gate_up_proj".
std::optional<Member> member_of(const LogicalTensor& t) {
  for (std::size_t part = 0; part < std::size(kBiasParts); ++part)
    if (t.shape.size() == 2 && t.name.ends_with(fmt::format(".experts.{}", kBiasParts[part])))
      return Member{t.name.substr(0, t.name.rfind(".experts.")) + std::string(kBiases), 0,
                    &kProjections[part]};
  const std::string module = t.module(), layer = expert_layer_of(module);
  if (layer.empty() || t.shape.size() != 2 || !t.name.ends_with(".weight")) return {};
  Member member;
  const char* const end = module.data() + module.size();
  const char* const begin = module.data() + layer.size() + 1;
  const auto [behind, error] = std::from_chars(begin, end, member.expert);
  if (error != std::errc() || behind == end || *behind != '.') return {};
  const std::string_view last(behind + 1, end);
  const auto* const it = std::ranges::find(kProjections, last, &Projection::name);
  if (it == std::end(kProjections)) return {};
  member.stack = fmt::format("{}.{}", layer, it->stack);
  member.projection = it;
  return member;
}

using Members = std::map<std::pair<std::size_t, std::size_t>, const LogicalTensor*>;

ExpertStack stack_of(const std::string& name, const Members& members, std::size_t parts,
                     StackForm form) {
  ExpertStack stack;
  stack.name = name;
  stack.form = form;
  stack.parts = parts;
  const LogicalTensor& first = *members.begin()->second;
  for (const auto& [place, tensor] : members) {
    const std::size_t n = stack.members.size();
    require<FormatError>(place == std::pair(n / parts, n % parts),
                         "{}: is there, and not what stands before it in {}, where experts 0, 1, "
                         "... have {} each; the files are not complete",
                         tensor->data.describe(), printable(name),
                         parts == 2 ? "gate_proj and up_proj" : "one");
    require<FormatError>(tensor->shape == first.shape, "{}: shape [{}], must be [{}] as that of {}",
                         tensor->data.describe(), fmt::join(tensor->shape, ", "),
                         fmt::join(first.shape, ", "), printable(first.name));
    stack.members.push_back(tensor);
  }
  require<FormatError>(members.size() % parts == 0, "{}: has no up_proj beside its gate_proj",
                       members.rbegin()->second->data.describe());
  stack.shape = {static_cast<std::int64_t>(members.size() / parts),
                 static_cast<std::int64_t>(parts) * first.shape[0], first.shape[1]};
  if (is_bias_stack(name)) {
    stack.form.transposed = false;
    stack.shape = {first.shape[0], 2 * first.shape[1]};
  } else if (form.transposed) {
    std::swap(stack.shape[1], stack.shape[2]);
  }
  return stack;
}

std::uint64_t plain_bytes(std::int64_t elements, safetensors::DType plain) {
  return static_cast<std::uint64_t>(elements * safetensors::dtype_bits(plain) / 8);
}

Work block_work(Rest rest) { return rest == Rest::mxfp4 ? Work(Mxfp4Work()) : Q8Work(); }

/// Returns the size of a row of `cols` elements in blocks.
std::int64_t block_bytes(Rest rest, std::int64_t cols) {
  return rest == Rest::mxfp4 ? cols / gguf::kMxBlock * gguf::kMxBlockBytes
                             : cols / gguf::kQ8Block * gguf::kQ8BlockBytes;
}

/// Returns the matrix transposed, as x · W needs it.
WeightSlice transposed_weight(const LogicalTensor& t) {
  WeightSlice slice = whole_weight(t);
  std::swap(slice.rows, slice.cols);
  slice.row_stride = 1;
  slice.col_stride = slice.rows;
  return slice;
}

}  // namespace

StackOf find_stacks(std::span<const LogicalTensor> tensors, const ModelConfig& config,
                    const std::set<const LogicalTensor*>* encoded) {
  const std::optional<StackForm> form = stack_form(config);
  if (!form) return {};
  struct Found {
    Members members;
    std::size_t parts = 1;
    bool quantized = false;
  };
  std::map<std::string, Found> found;
  std::set<std::string> encoded_layers;
  for (const LogicalTensor& t : tensors) {
    const std::optional<Member> member = member_of(t);
    if (!member) continue;
    Found& stack = found[member->stack];
    stack.parts = member->projection->parts;
    stack.quantized |= !t.is_plain();
    if (encoded != nullptr && encoded->contains(&t))
      encoded_layers.insert(expert_layer_of(t.module()));
    const auto [it, is_new] =
        stack.members.try_emplace({member->expert, member->projection->part}, &t);
    require<FormatError>(is_new, "{}: is the same expert as {}, must be another", t.data.describe(),
                         printable(it->second->name));
  }
  StackOf stacks;
  for (const auto& [name, of] : found) {
    const bool is_encoded = encoded_layers.contains(name.substr(0, name.rfind('.')));
    if (encoded == nullptr ? !of.quantized : is_encoded && !is_bias_stack(name)) continue;
    const auto stack = std::make_shared<ExpertStack>(stack_of(name, of.members, of.parts, *form));
    for (const LogicalTensor* member : stack->members) stacks[member] = stack;
  }
  return stacks;
}

void add_decoded(Plan& plan, PlannedShard& shard, safetensors::DType plain) {
  PlannedTensor& tensor = plan.tensors.back();
  const LogicalTensor& t = *tensor.source;
  const bool transpose = t.names != nullptr && t.names->transposed_stacks;
  const std::vector<WeightSlice> slices =
      transpose ? transposed_matrices(t) : std::vector<WeightSlice>{whole_weight(t)};
  safetensors::TensorSpec spec{t.name, plain, t.shape};
  if (transpose) std::swap(spec.shape[1], spec.shape[2]);
  if (tensor.reason.empty()) tensor.reason = plan.texts.keep(t.form_name() + " in the input");
  tensor.first_unit = plan.units.size();
  tensor.units = slices.size();
  tensor.bytes_after = plain_bytes(t.elements(), plain);
  std::int64_t begin = 0;
  for (const WeightSlice& slice : slices) {
    plan.units.push_back(
        {.tensor = plan.tensors.size() - 1,
         .slice = slice,
         .places = {.codes = shard.specs.size()},
         .kind = DequantizeWork({.dtype = plain, .begin = begin, .transposed = transpose})});
    begin += slice.rows * slice.cols;
  }
  shard.specs.push_back(spec);
}

std::string_view action_of(Rest rest) {
  return rest == Rest::plain ? "dequantized" : rest == Rest::q8_0 ? "q8_0" : "kept";
}

void LostWeights::add(const LogicalTensor& t, Rest rest, std::string_view reason) {
  constexpr const char* kForms[] = {"BF16", "Q8_0", "MXFP4"};
  modules_[{t.form_name(), kForms[static_cast<int>(rest)], std::string(reason)}].add(t.module());
}

std::vector<std::string> LostWeights::warnings(std::string_view format) const {
  std::vector<std::string> lines;
  for (const auto& [what, modules] : modules_) {
    const auto& [form, type, reason] = what;
    lines.push_back(
        fmt::format("{} {} weights {}{}: {}", modules.count, form,
                    form == type ? "stay as they are"
                                 : fmt::format("become {}, {} cannot hold them", type, format),
                    reason.empty() ? "" : fmt::format(" ({})", reason), modules.text()));
  }
  return lines;
}

bool has_columns_of_keys(const LogicalTensor& t) { return t.name.ends_with(".kv_b_proj.weight"); }

bool fits_q8_0(const LogicalTensor& t, bool splits_stack) {
  if (!t.added.empty() || is_bias_stack(t.name) || has_columns_of_keys(t)) return false;
  return t.shape.size() == 2 ? t.cols() % gguf::kQ8Block == 0
                             : splits_stack && t.depth() % gguf::kQ8Block == 0;
}

void add_blocks(Plan& plan, PlannedShard& shard, Rest rest) {
  PlannedTensor& tensor = plan.tensors.back();
  const LogicalTensor& t = *tensor.source;
  const std::int64_t row_bytes = block_bytes(rest, t.cols());
  if (tensor.reason.empty()) tensor.reason = plan.texts.keep(t.form_name() + " in the input");
  tensor.first_unit = plan.units.size();
  tensor.units = 1;
  tensor.bytes_after = static_cast<std::uint64_t>(t.rows() * row_bytes);
  plan.units.push_back({.tensor = plan.tensors.size() - 1,
                        .slice = whole_weight(t),
                        .places = {.codes = shard.specs.size()},
                        .kind = block_work(rest)});
  shard.specs.push_back({t.name, safetensors::DType::u8, {t.rows(), row_bytes}});
}

bool is_bias_stack(std::string_view name) { return name.ends_with(kBiases); }

void add_single_experts(Plan& plan, PlannedShard& shard, std::span<const LogicalTensor> tensors,
                        const ModelConfig& config, safetensors::DType plain, Rest rest) {
  PlannedTensor& tensor = plan.tensors.back();
  const LogicalTensor& t = *tensor.source;
  const bool biases = is_bias_stack(t.name);
  if (t.is_plain()) plain = t.data.info->dtype;
  std::vector<WeightSlice> experts;
  if (!biases) {
    experts = slices_of(t, tensors, config, false);
  } else {
    const std::int64_t parts = 2, size = t.cols() / parts;
    const std::optional<StackForm> form = stack_form(config);
    const bool alternate = form && form->interleaved;
    for (std::int64_t part = 0; part < parts; ++part)
      experts.push_back(
          {.module = t.name.substr(0, t.name.rfind('.') + 1) + std::string(kBiasParts[part]),
           .rows = t.rows(),
           .cols = size,
           .offset = part * (alternate ? 1 : size),
           .row_stride = t.cols(),
           .col_stride = alternate ? parts : 1});
  }
  if (tensor.reason.empty()) tensor.reason = plan.texts.keep(t.form_name() + " in the input");
  tensor.first_unit = plan.units.size();
  tensor.units = experts.size();
  for (const WeightSlice& slice : experts) {
    const bool blocks = rest != Rest::plain;
    const std::int64_t row_bytes = block_bytes(rest, slice.cols);
    tensor.bytes_after += blocks ? static_cast<std::uint64_t>(slice.rows * row_bytes)
                                 : plain_bytes(slice.rows * slice.cols, plain);
    plan.units.push_back({.tensor = plan.tensors.size() - 1,
                          .slice = slice,
                          .places = {.codes = shard.specs.size()},
                          .kind = blocks ? block_work(rest) : DequantizeWork({.dtype = plain})});
    safetensors::TensorSpec spec{
        slice.module + (biases ? "" : ".weight"), plain, {slice.rows, slice.cols}};
    if (blocks) spec = {spec.name, safetensors::DType::u8, {slice.rows, row_bytes}};
    shard.specs.push_back(spec);
  }
}

void add_stack(Plan& plan, PlannedShard& shard, const ExpertStack& stack,
               safetensors::DType plain) {
  const bool pairs = stack.parts == 2 && (stack.form.transposed || is_bias_stack(stack.name));
  const LogicalTensor& first = *stack.members.front();
  if (first.is_plain() && safetensors::dtype_bits(first.data.info->dtype) == 16)
    plain = first.data.info->dtype;
  std::int64_t begin = 0;
  for (std::size_t m = 0; m < stack.members.size(); ++m) {
    const LogicalTensor& t = *stack.members[m];
    const std::size_t number = plan.tensors.size();
    PlannedTensor& tensor = plan.tensors.emplace_back();
    tensor.source = &t;
    tensor.name = t.name;
    tensor.shard = plan.shards.size();
    tensor.kind = "expert";
    tensor.reason =
        plan.texts.keep(fmt::format("{} in the input, becomes a part of {}", t.form_name(),
                                    stack.name.substr(stack.name.rfind('.') + 1)));
    tensor.action = "dequantized";
    tensor.bytes_before = t.bytes;
    tensor.bytes_after = plain_bytes(t.elements(), plain);
    tensor.first_unit = plan.units.size();
    if (pairs && m % 2 == 1) continue;  // a part of the unit before
    tensor.units = 1;
    plan.units.push_back(
        {.tensor = number,
         .slice = stack.form.transposed ? transposed_weight(t) : whole_weight(t),
         .second = pairs ? number + 1 : kNone,
         .places = {.codes = shard.specs.size()},
         .kind = DequantizeWork({.dtype = plain,
                                 .begin = begin,
                                 .transposed = stack.form.transposed,
                                 .pairs = pairs,
                                 .interleaved = pairs && stack.form.interleaved})});
    begin += t.elements() * (pairs ? 2 : 1);
  }
  shard.specs.push_back({stack.name, plain, stack.shape});
}

}  // namespace nvfp4::checkpoint
