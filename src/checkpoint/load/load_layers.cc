#include "nvfp4/checkpoint/load_layers.h"

#include <fmt/ranges.h>

#include "checkpoint/load/layer_weights.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {

using checkpoint::LayerWeights;
using checkpoint::LogicalTensor;

Checkpoint::Checkpoint(const std::filesystem::path& path)
    : impl_(new Impl{path.string(), checkpoint::CheckpointReader(path)}) {
  require<FormatError>(impl_->reader.complete(), "{}: incomplete, an interrupted run left it",
                       path.string());
}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

bool Checkpoint::has(std::string_view tensor) const {
  return impl_->reader.find(tensor) != nullptr;
}

namespace {

const LogicalTensor& find_tensor(const Checkpoint::Impl& impl, std::string_view name) {
  const LogicalTensor* t = impl.reader.find(name);
  require<FormatError>(t != nullptr, "{}: there is no tensor '{}'", impl.path, printable(name));
  return *t;
}

}  // namespace

std::vector<std::int64_t> Checkpoint::shape(std::string_view tensor) const {
  return find_tensor(*impl_, tensor).shape;
}

Matrix Checkpoint::read(std::string_view tensor, DType dtype) const {
  const LogicalTensor& t = find_tensor(*impl_, tensor);
  require<FormatError>(!t.shape.empty() && t.shape.size() <= 2 && t.readable(),
                       "{}: {} [{}], must be numbers of one or two dimensions",
                       checkpoint::describe(t), t.form_name(), fmt::join(t.shape, ", "));
  const std::int64_t cols = t.shape.back(), rows = t.shape.size() == 2 ? t.shape[0] : 1;
  Matrix values(DType::f32, rows, cols);
  t.read(0, {values.data<float>(), static_cast<std::size_t>(rows * cols)});
  if (dtype == DType::f32) return values;
  Matrix out(dtype, rows, cols);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const float value = values.data<float>()[i];
    out.data<std::uint16_t>()[i] =
        dtype == DType::bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
  }
  return out;
}

Linear load_linear(const Checkpoint& checkpoint, std::string_view module,
                   const LinearOptions& options, Unquantized unquantized) {
  const std::string name(module);
  return load_linear(checkpoint, {&name, 1}, options, unquantized);
}

Linear load_linear(const Checkpoint& checkpoint, std::span<const std::string> modules,
                   const LinearOptions& options, Unquantized unquantized) {
  LayerWeights weights(checkpoint, unquantized);
  std::vector<WeightView> parts;
  std::vector<float> bias;
  bool any_bias = false;
  for (const std::string& module : modules) {
    const WeightView& w = parts.emplace_back(weights.matrix(module));
    weights.require_shape(w, w.outputs(), parts[0].inputs());
    std::vector<float> own = weights.bias(module, w.outputs());
    any_bias |= !own.empty();
    own.resize(static_cast<std::size_t>(w.outputs()));
    bias.insert(bias.end(), own.begin(), own.end());
  }
  LinearOptions with_bias = options;
  if (any_bias && options.bias.empty()) with_bias.bias = bias;
  return Linear(parts, with_bias);
}

GroupedLinear load_grouped_linear(const Checkpoint& checkpoint, std::string_view module,
                                  std::int64_t groups, const LinearOptions& options,
                                  Unquantized unquantized) {
  LayerWeights weights(checkpoint, unquantized);
  const std::string name(module);
  if (options.bias.empty()) weights.require_no_bias(name);
  const LogicalTensor* t = weights.find(name);
  if (t == nullptr || t->shape.size() != 3)
    return GroupedLinear(split_groups(weights.matrix(name), groups), options);
  const LogicalTensor& stack = weights.get(name, 3);
  require<FormatError>(stack.shape[0] == groups, "{}: shape [{}], must begin with {} groups",
                       checkpoint::describe(stack), fmt::join(stack.shape, ", "), groups);
  if (stack.is_nvfp4()) return GroupedLinear(weights.stack(stack), options);
  require<FormatError>(stack.is_plain(), "{}: {}, stacks must be NVFP4 or plain",
                       checkpoint::describe(stack), stack.form_name());
  const std::int64_t n = stack.shape[1], k = stack.shape[2];
  return GroupedLinear(split_groups(weights.slice(stack, 0, groups * n, k, k, 1), groups), options);
}

GroupedLinear load_grouped_linear(const Checkpoint& checkpoint,
                                  std::span<const std::string> modules,
                                  const LinearOptions& options, Unquantized unquantized) {
  LayerWeights weights(checkpoint, unquantized);
  std::vector<WeightView> groups;
  for (const std::string& module : modules) {
    if (options.bias.empty()) weights.require_no_bias(module);
    groups.push_back(weights.matrix(module));
    weights.require_shape(groups.back(), groups[0].outputs(), groups[0].inputs());
  }
  return GroupedLinear(groups, options);
}

}  // namespace nvfp4
