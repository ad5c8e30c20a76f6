#include "layers/fragments.h"

#include <algorithm>
#include <utility>

#include "core/require.h"
#include "layers/weights.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

/// Whether the weights of some group may need a global scale for each row.
bool have_row_globals(std::span<const std::vector<WeightView>> groups) {
  return std::ranges::any_of(groups, [](const std::vector<WeightView>& parts) {
    return parts.size() != 1 ||
           (parts[0].is_quantized() && parts[0].quantized.shape.scope == GlobalScope::vector);
  });
}

/// The same matrix with a global scale for each row.
QuantizedMatrix with_row_globals(const QuantizedView& q) {
  QuantizedShape shape = q.shape;
  shape.scope = GlobalScope::vector;
  QuantizedMatrix rows(shape);
  std::copy_n(q.codes, shape.code_bytes(), rows.codes());
  std::copy_n(q.scales, shape.scale_bytes(), rows.scales());
  std::fill_n(rows.global_scale(), shape.global_count(), *q.global_scale);
  return rows;
}

}  // namespace

FragmentWeights fragment_parts(const char* op, std::span<const std::vector<WeightView>> groups,
                               Quantizer dense, std::string_view backend, Device device,
                               std::optional<GateUp> gate_up) {
  FragmentWeights weights;
  const GlobalScope scope = have_row_globals(groups) ? GlobalScope::vector : GlobalScope::tensor;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    // By way of the CPU's packing, which checks every scale and joins the parts.
    QuantizedMatrix q = unpack_weights(pack_parts(op, groups[g], dense, backend));
    if (q.shape().scope != scope) q = with_row_globals(q.view());
    if (g == 0)
      weights = FragmentWeights(static_cast<std::int64_t>(groups.size()), q.shape().rows,
                                q.shape().cols, scope, device, gate_up);
    if (device.type == DeviceType::cuda) q = to_device(q.view(), device);
    pack_fragments_into(q.view(), weights, static_cast<std::int64_t>(g));
    synchronize(device);
  }
  return weights;
}

std::span<std::byte> decoding_memory(Rows& memory, const QuantizedShape& x, Device device) {
  const std::int64_t bytes = gemm_workspace_bytes(x);
  const MatrixSpan m = memory.get(DType::bf16, 1, bytes / 2, device);
  return {static_cast<std::byte*>(m.data), static_cast<std::size_t>(bytes)};
}

FragmentLinear::FragmentLinear(const char* op, std::span<const std::vector<WeightView>> groups,
                               const LinearOptions& options, InputQuantizer input)
    : weights_(
          fragment_parts(op, groups, options.weight_quantizer, options.backend, options.device)),
      input_(std::move(input)),
      scheme_(options.scheme),
      batch_invariant_(options.batch_invariant),
      max_tokens_(options.max_tokens),
      partial_sums_(options.partial_sums) {
  if (partial_sums_ != nullptr)
    require_on(op, "partial_sums", partial_sums_->device(), weights_.device());
  if (!options.bias.empty())
    bias_ = to_device(MatrixView(options.bias.data(), DType::f32, 1,
                                 static_cast<std::int64_t>(options.bias.size())),
                      options.device);
  if (scheme_ != Scheme::nvfp4 || max_tokens_ <= 0) return;
  const QuantizedSpan x =
      rows_.get(max_tokens_, weights_.groups() * weights_.cols(), input_.scope, weights_.device());
  decoding_memory(decoded_, x.shape, weights_.device());
}

template <class X>
void FragmentLinear::run(const X& x, const std::span<const std::int32_t>* row_ends,
                         const MatrixSpan& out, Stream stream) const {
  TensorCoreGemmOptions options{
      .batch_invariant = batch_invariant_, .partial_sums = partial_sums_, .stream = stream};
  if (bias_.cols() > 0)
    options.bias = {bias_.data<float>(), static_cast<std::size_t>(bias_.cols())};
  if constexpr (std::is_same_v<X, QuantizedView>)
    options.workspace = decoding_memory(decoded_, x.shape, weights_.device());
  if (row_ends != nullptr)
    grouped_gemm_into(x, weights_, {}, *row_ends, out, options);
  else if (weights_.groups() == 1)
    gemm_into(x, weights_, out, options);
  else
    gemm_every_group_into(x, weights_, out, options);
}

void FragmentLinear::quantize_and_run(const char* op, const MatrixView& x,
                                      const std::span<const std::int32_t>* row_ends,
                                      const MatrixSpan& out, Stream stream) const {
  require_matrix(op, "x", x);
  require_on(op, "x", x.device, weights_.device());
  require_tokens(op, x.rows, max_tokens_);
  if (scheme_ == Scheme::nvfp4a16) return run(x, row_ends, out, stream);
  const std::int64_t k = weights_.cols(), all = weights_.groups() * k;
  require<ShapeError>(x.cols == k || (row_ends == nullptr && x.cols == all),
                      "{}: x.cols = {}, must be K = {}{}", op, x.cols, k,
                      row_ends == nullptr && all != k ? fmt::format(" or G·K = {}", all) : "");
  const std::lock_guard lock(mutex_);
  const QuantizedSpan quantized = rows_.get(x.rows, x.cols, input_.scope, weights_.device());
  quantize_into(x, quantized, input_.options(stream));
  run(QuantizedView(quantized), row_ends, out, stream);
}

void FragmentLinear::forward(const char* op, const MatrixView& x, const MatrixSpan& out,
                             Stream stream) const {
  quantize_and_run(op, x, nullptr, out, stream);
}
void FragmentLinear::forward_rows(const char* op, const MatrixView& x,
                                  std::span<const std::int32_t> row_ends, const MatrixSpan& out,
                                  Stream stream) const {
  quantize_and_run(op, x, &row_ends, out, stream);
}

void FragmentLinear::forward(const char* op, const QuantizedView& x, const MatrixSpan& out,
                             Stream stream) const {
  require_w4a4(op, scheme_);
  require_quantized(op, "x", x);
  require_on(op, "x", x.device, weights_.device());
  require_tokens(op, x.shape.rows, max_tokens_);
  const std::lock_guard lock(mutex_);
  run(x, nullptr, out, stream);
}
void FragmentLinear::forward_rows(const char* op, const QuantizedView& x,
                                  std::span<const std::int32_t> row_ends, const MatrixSpan& out,
                                  Stream stream) const {
  require_w4a4(op, scheme_);
  require_quantized(op, "x", x);
  require_on(op, "x", x.device, weights_.device());
  require_tokens(op, x.shape.rows, max_tokens_);
  const std::lock_guard lock(mutex_);
  run(x, &row_ends, out, stream);
}

}  // namespace nvfp4
