#include "layers/linear_layer.h"

#include "core/require.h"
#include "layers/weights.h"
#include "ops/options.h"
#include "ops/run_gemm.h"

namespace nvfp4 {
namespace {

std::optional<GlobalScale> stored_scale(std::span<const std::vector<WeightView>> groups) {
  std::optional<GlobalScale> largest;
  for (const std::vector<WeightView>& parts : groups)
    largest = larger(largest, largest_input_scale(parts));
  return largest;
}

}  // namespace

LinearLayer::LinearLayer(const char* op, std::span<const std::vector<WeightView>> groups,
                         const LinearOptions& options)
    : input_(options.activation, stored_scale(groups), options.activation_quantizer,
             options.backend),
      scheme_(options.scheme),
      batch_invariant_(options.batch_invariant),
      autotune_(options.autotune),
      max_tokens_(options.max_tokens),
      backend_(options.backend),
      workspace_(options.workspace) {
  require_layer_device(op, options.device, options.autotune);
  std::int64_t outputs = 0;
  for (const std::vector<WeightView>& parts : groups)
    for (const WeightView& w : parts) outputs += w.outputs();
  require<ShapeError>(options.bias.empty() || std::ssize(options.bias) == outputs,
                      "{}: bias has {} elements, must have none or {}", op, options.bias.size(),
                      outputs);
  weights_ = pack_groups(op, groups, options.weight_quantizer, options.backend, options.device);
  work_.set_device(options.device);
  if (!options.bias.empty())
    bias_ = to_device(MatrixView(options.bias.data(), DType::f32, 1, std::ssize(options.bias)),
                      options.device);
  if (scheme_ != Scheme::w4a4 || max_tokens_ <= 0) return;
  const std::int64_t cols = weights_.groups() * weights_.cols();
  Scratch<Work>::Lease work(work_);
  work->x.get(max_tokens_, cols, input_.scope, options.device);
  const GemmForm form = weights_.groups() == 1 ? GemmForm::dense : GemmForm::every_group;
  GemmDescription widest = description(form, max_tokens_, cols);
  widest.max_workspace_bytes = 0;
  widest.autotune = false;
  work->workspace.bytes(plan_gemm(weights_, widest).workspace_bytes(), options.device);
}

GemmDescription LinearLayer::description(GemmForm form, std::int64_t rows,
                                         std::int64_t x_cols) const {
  return {.m = rows,
          .form = form,
          .scheme = scheme_,
          .shared_x = form == GemmForm::every_group && x_cols == weights_.cols(),
          .batch_invariant = batch_invariant_,
          .max_workspace_bytes = std::ssize(workspace_),
          .autotune = autotune_,
          .backend = backend_};
}

void LinearLayer::run(const char* op, GemmDescription d, const GemmArguments& arguments, Work& work,
                      Stream stream) const {
  GemmArguments all = arguments;
  all.weights = weights_;
  if (bias_.cols() > 0) all.bias = {bias_.data<float>(), static_cast<std::size_t>(bias_.cols())};
  d.out = std::get<MatrixSpan>(all.out).dtype;
  GemmPlan plan = plan_gemm(weights_, d);
  std::span<std::byte> workspace = workspace_;
  if (plan.workspace_bytes() > std::ssize(workspace)) {
    d.max_workspace_bytes = 0;
    plan = plan_gemm(weights_, d);
    workspace = work.workspace.bytes(plan.workspace_bytes(), weights_.device());
  }
  run_gemm(op, plan, all, workspace, stream, false);
}

void LinearLayer::forward(const char* op, GemmForm form, const MatrixView& x,
                          std::span<const std::int32_t> row_ends, const MatrixSpan& out,
                          Stream stream) const {
  const Device device = weights_.device();
  require_on(op, "x", x.device, device);
  require_matrix(op, "x", x);
  require_tokens(op, x.rows, max_tokens_);
  const std::int64_t k = weights_.cols(), all = weights_.groups() * k;
  const bool every_group = form == GemmForm::every_group;
  require<ShapeError>(x.cols == k || (every_group && x.cols == all),
                      "{}: x.cols = {}, must be K = {}{}", op, x.cols, k,
                      every_group && all != k ? fmt::format(" or G·K = {}", all) : "");
  Scratch<Work>::Lease work(work_);
  GemmDescription d = description(form, x.rows, x.cols);
  if (scheme_ == Scheme::w4a16) {
    d.x = x.dtype;
    return run(op, d, {.x = x, .out = out, .row_ends = row_ends}, *work, stream);
  }
  const QuantizedSpan quantized = work->x.get(x.rows, x.cols, input_.scope, device);
  quantize_into(x, quantized, input_.options(stream));
  run(op, d, {.x = QuantizedView(quantized), .out = out, .row_ends = row_ends}, *work, stream);
}

void LinearLayer::forward(const char* op, GemmForm form, const QuantizedView& x,
                          std::span<const std::int32_t> row_ends, const MatrixSpan& out,
                          Stream stream) const {
  require_w4a4(op, scheme_);
  require_tokens(op, x.shape.rows, max_tokens_);
  Scratch<Work>::Lease work(work_);
  run(op, description(form, x.shape.rows, x.shape.cols), {.x = x, .out = out, .row_ends = row_ends},
      *work, stream);
}

}  // namespace nvfp4
