#include "ops/check_gemm.h"

#include <cmath>

#include "backends/gemm_backend.h"
#include "core/require.h"
#include "ops/options.h"

namespace nvfp4 {
namespace {

/// The limits of TMA: rows, and bytes between rows. A tile is subtracted from 2^31.
constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 256;
constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 40;
constexpr std::int64_t kRowElements = 8;  ///< rows on a GPU start at multiples of 16 bytes

bool on_cpu(Device device) { return device.type == DeviceType::cpu; }

void require_dtype(const char* op, const char* argument, DType t) {
  require<ValueError>(t == DType::f32 || t == DType::bf16 || t == DType::f16,
                      "{}: {} = {}, must be f32, bf16 or f16", op, argument, static_cast<int>(t));
}

class Checker {
 public:
  Checker(const char* op, const GemmPlan& plan, const GemmArguments& arguments)
      : op_(op), d_(plan.description()), device_(plan.device()), a_(arguments) {}

  void check(std::int64_t workspace_bytes, std::span<std::byte> workspace) const {
    check_weights();
    const std::int64_t x_rows = d_.scheme == Scheme::w4a4 ? check_quantized_x() : check_dense_x();
    check_rows(x_rows);
    if (d_.epilogue == Epilogue::swiglu_quantize)
      check_quantized_out();
    else
      check_dense_out();
    check_factors();
    if (d_.form == GemmForm::grouped) check_groups(x_rows);
    if (d_.form == GemmForm::routed) check_routing();
    require<ShapeError>(std::ssize(workspace) >= workspace_bytes &&
                            (workspace_bytes == 0 || workspace.data() != nullptr),
                        "{}: workspace has {} bytes, must have {}: see GemmPlan::workspace_bytes",
                        op_, workspace.size(), workspace_bytes);
    require<ShapeError>(
        workspace_bytes == 0 || reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 == 0,
        "{}: workspace = {}, must be aligned to 16 bytes", op_,
        static_cast<const void*>(workspace.data()));
  }

 private:
  void check_weights() const {
    const PackedWeights& w = a_.weights;
    require<ShapeError>(!w.empty(), "{}: weights are empty, must be what pack_weights returns",
                        op_);
    check_device("weights", w.device());
    require<ShapeError>(w.groups() == d_.groups && w.rows() == d_.n && w.cols() == d_.k,
                        "{}: weights are [G, N, K] = [{}, {}, {}], must be [{}, {}, {}] as planned",
                        op_, w.groups(), w.rows(), w.cols(), d_.groups, d_.n, d_.k);
    const bool gate_up = w.impl().gate_up().has_value();
    require<ValueError>(gate_up || d_.epilogue == Epilogue::none,
                        "{}: weights are not packed as gate and up, must be for SwiGLU: see "
                        "PackOptions::gate_up",
                        op_);
    require<ValueError>(!gate_up || d_.epilogue != Epilogue::none,
                        "{}: the rows of weights are those of gate and up, packed for SwiGLU: "
                        "epilogue = none must be swiglu or swiglu_quantize",
                        op_);
  }

  void check_device(const char* argument, Device device) const {
    require<DeviceError>(device == device_, ErrorCode::other_device,
                         "{}: {} lies on {}, must lie on {} as planned", op_, argument,
                         device_name(device), device_name(device_));
  }

  void check_cols(std::int64_t cols) const {
    const std::int64_t wanted =
        d_.form == GemmForm::every_group && !d_.shared_x ? d_.groups * d_.k : d_.k;
    require<ShapeError>(cols == wanted, "{}: x.cols = {}, must be {} = {}", op_, cols,
                        wanted == d_.k ? "K" : "G·K", wanted);
  }

  std::int64_t check_dense_x() const {
    const MatrixView* const x = std::get_if<MatrixView>(&a_.x);
    require<ValueError>(x != nullptr, "{}: x is quantized, must be a matrix: the plan is W4A16",
                        op_);
    require<ValueError>(x->dtype == d_.x, "{}: x.dtype = {}, must be {} as planned", op_,
                        dtype_name(x->dtype), dtype_name(d_.x));
    check_device("x", x->device);
    require_matrix(op_, "x", *x);
    check_cols(x->cols);
    require<ShapeError>(
        on_cpu(device_) ||
            (x->stride % kRowElements == 0 && x->stride * dtype_size(x->dtype) < kMostRowBytes),
        "{}: x.stride = {}, must be a multiple of 8 (rows start at multiples of 16 bytes) and less "
        "than 2^39",
        op_, x->stride);
    return x->rows;
  }

  std::int64_t check_quantized_x() const {
    const QuantizedView* const x = std::get_if<QuantizedView>(&a_.x);
    require<ValueError>(x != nullptr, "{}: x is a matrix, must be quantized: the plan is W4A4",
                        op_);
    check_device("x", x->device);
    require_quantized(op_, "x", *x);
    const QuantizedShape& s = x->shape;
    require<ShapeError>(s.axis == BlockAxis::rows,
                        "{}: x has its blocks down the columns, must have them along the rows",
                        op_);
    require<ShapeError>(s.block == kBlock, "{}: x has blocks of {}, must be 16", op_, s.block);
    require<ShapeError>(s.layout == ScaleLayout::linear || !on_cpu(device_),
                        "{}: x has {} scales, must be linear", op_, layout_name(s.layout));
    require<ShapeError>(s.rows == 0 || x->global_scale != nullptr, "{}: x.global_scale is null",
                        op_);
    require_array(op_, "x.global_scale", x->global_scale, s.rows == 0 ? 0 : s.global_count());
    check_cols(s.cols);
    return s.rows;
  }

  /// Checks that x has a row for each row of out, or for each token.
  void check_rows(std::int64_t x_rows) const {
    const std::int64_t rows = rows_of_result(a_);
    const bool of_tokens = d_.form == GemmForm::routed && d_.shared_x;
    const std::int64_t wanted = of_tokens ? x_rows * d_.top_k : x_rows;
    require<ShapeError>(rows == wanted, "{}: out has {} rows, must have {} for {} of x{}", op_,
                        rows, wanted, x_rows,
                        of_tokens ? fmt::format(", {} choices each", d_.top_k) : "");
    require<ShapeError>(rows <= d_.m, "{}: out has {} rows, must have at most m = {} as planned",
                        op_, rows, d_.m);
  }

  std::int64_t out_cols() const {
    if (d_.epilogue != Epilogue::none) return d_.n / 2;
    return d_.form == GemmForm::every_group ? d_.groups * d_.n : d_.n;
  }

  void check_dense_out() const {
    const MatrixSpan* const out = std::get_if<MatrixSpan>(&a_.out);
    require<ValueError>(out != nullptr, "{}: out is quantized, must be a matrix as planned", op_);
    require<ValueError>(out->dtype == d_.out, "{}: out.dtype = {}, must be {} as planned", op_,
                        dtype_name(out->dtype), dtype_name(d_.out));
    check_device("out", out->device);
    require_matrix(op_, "out", *out);
    require<ShapeError>(out->cols == out_cols(), "{}: out has {} columns, must have {}", op_,
                        out->cols, out_cols());
  }

  void check_quantized_out() const {
    const QuantizedSpan* const out = std::get_if<QuantizedSpan>(&a_.out);
    require<ValueError>(out != nullptr, "{}: out is a matrix, must be quantized as planned", op_);
    require<ValueError>(!a_.out_global.empty() || on_cpu(device_) || out->shape.rows == 0,
                        "{}: out_global is empty, must be given on a GPU: see swiglu_quantize_into "
                        "for one that is measured",
                        op_);
    // A few rows at a time have neither the amax of all rows nor whole tiles of scales.
    const bool by_groups = on_cpu(device_) && d_.form == GemmForm::grouped;
    require<UnsupportedError>(
        !by_groups || (out->shape.layout == ScaleLayout::linear &&
                       (!a_.out_global.empty() || out->shape.scope == GlobalScope::vector)),
        "{}: out of groups on the CPU must have linear scales, and a global "
        "scale that is given or one for each row",
        op_);
    const QuantizeOptions options{
        .layout = out->shape.layout, .scope = out->shape.scope, .global = a_.out_global};
    require_output(op_, *out, quantized_shape(op_, out->shape.rows, out_cols(), device_, options),
                   device_);
  }

  void check_factors() const {
    const auto check = [&](const char* name, std::span<const float> s, std::int64_t count) {
      require<ShapeError>(s.empty() || std::ssize(s) == count,
                          "{}: {} has {} elements, must have none or {}", op_, name, s.size(),
                          count);
      require_array(op_, name, s.data(), std::ssize(s));
    };
    check("group_alpha", a_.group_alpha, d_.groups);
    check("bias", a_.bias, d_.groups * d_.n);
  }

  void check_groups(std::int64_t x_rows) const {
    require<ShapeError>(std::ssize(a_.row_ends) == d_.groups,
                        "{}: row_ends has {} elements, must have G = {}", op_, a_.row_ends.size(),
                        d_.groups);
    require<ShapeError>(a_.row_starts.empty() || std::ssize(a_.row_starts) == d_.groups,
                        "{}: row_starts has {} elements, must have none or G = {}", op_,
                        a_.row_starts.size(), d_.groups);
    require_array(op_, "row_ends", a_.row_ends.data(), d_.groups);
    require_array(op_, "row_starts", a_.row_starts.data(), std::ssize(a_.row_starts));
    if (!on_cpu(device_)) return;
    std::int32_t row = 0;
    for (std::size_t g = 0; g < a_.row_ends.size(); ++g) {
      if (!a_.row_starts.empty()) {
        require<ShapeError>(a_.row_starts[g] >= row,
                            "{}: row_starts[{}] = {}, must not be below {}", op_, g,
                            a_.row_starts[g], row);
        row = a_.row_starts[g];
      }
      const std::int32_t end = a_.row_ends[g];
      require<ShapeError>(end >= row, "{}: row_ends[{}] = {}, must not be below {}", op_, g, end,
                          row);
      require<ShapeError>(end <= x_rows, "{}: row_ends[{}] = {}, must be at most {}, the rows of x",
                          op_, g, end, x_rows);
      row = end;
    }
  }

  void check_routing() const {
    const Routing& r = a_.routing;
    const std::int64_t rows = rows_of_result(a_);
    require<ShapeError>(r.top_k == d_.top_k, "{}: routing.top_k = {}, must be {} as planned", op_,
                        r.top_k, d_.top_k);
    require_ids(op_, r, r.rows);
    require<ShapeError>(r.rows * r.top_k == rows,
                        "{}: routing has {} tokens with {} choices each, must have {} in all, the "
                        "rows of out",
                        op_, r.rows, r.top_k, rows);
    if (on_cpu(device_)) require_experts(op_, r, d_.groups);
  }

  const char* op_;
  const GemmDescription& d_;
  Device device_;
  const GemmArguments& a_;
};

}  // namespace

std::int64_t rows_of_result(const GemmArguments& a) {
  if (const MatrixSpan* out = std::get_if<MatrixSpan>(&a.out)) return out->rows;
  return std::get<QuantizedSpan>(a.out).shape.rows;
}

namespace {
/// Throws UnsupportedError unless FP8 can compute the problem on some GPU.
void check_fp8(const char* op, const GemmDescription& d, Device device) {
  const struct {
    bool fault;
    const char* rule;
  } kRules[] = {
      {on_cpu(device), "must be exact on the CPU, which has no FP8 instructions"},
      {d.scheme == Scheme::w4a4, "must be exact for x in NVFP4 (W4A4)"},
      {d.form != GemmForm::dense, "must be exact unless the GEMM is dense"},
      {d.epilogue != Epilogue::none, "must be exact with SwiGLU"},
      {d.out == DType::f32, "must be exact for out in FP32"},
      {d.batch_invariant, "must be exact with batch_invariant: fewer rows are never in FP8"},
      {d.n % 16 != 0, "must be exact unless N is a multiple of 16"},
      {!d.kernel.empty(), "must be exact for a kernel of the caller"},
  };
  for (const auto& r : kRules)
    require<UnsupportedError>(!r.fault, "{}: arithmetic = fp8, {}", op, r.rule);
}
}  // namespace

void check_description(const char* op, const GemmDescription& d, Device device) {
  require<ShapeError>(d.m >= 0 && d.m <= kMostRows, "{}: m = {}, must be in 0 … {}", op, d.m,
                      kMostRows);
  require<ShapeError>(d.n >= 1 && d.k >= 0 && d.k % kBlock == 0 && d.groups >= 1,
                      ErrorCode::partial_block,
                      "{}: [groups, n, k] = [{}, {}, {}], groups and n must be at least 1 and k a "
                      "multiple of 16",
                      op, d.groups, d.n, d.k);
  require<ShapeError>(d.form != GemmForm::dense || d.groups == 1,
                      "{}: groups = {}, must be 1 for a dense GEMM", op, d.groups);
  require<ShapeError>(d.form != GemmForm::routed ||
                          (d.top_k >= 0 && (d.m == 0 || (d.top_k > 0 && d.m % d.top_k == 0))),
                      "{}: m = {}, must be a multiple of top_k = {}", op, d.m, d.top_k);
  if (d.scheme == Scheme::w4a16) {
    require_dtype(op, "x", d.x);
    require<ValueError>(d.x != DType::f32 || on_cpu(device),
                        "{}: x = f32, must be bf16 or f16 on {}", op, device_name(device));
  }
  require_dtype(op, "out", d.out);
  require<ValueError>(d.max_workspace_bytes >= 0,
                      "{}: max_workspace_bytes = {}, must not be negative", op,
                      d.max_workspace_bytes);
  require<ValueError>(!d.autotune || d.kernel.empty(),
                      "{}: kernel = '{}', must be empty with autotune = true", op, d.kernel);
  if (d.arithmetic == Arithmetic::fp8) check_fp8(op, d, device);
  if (d.epilogue == Epilogue::none) return;
  require<ShapeError>(d.n % 32 == 0, ErrorCode::partial_block,
                      "{}: n = 2·I = {}, I must be a multiple of 16 for SwiGLU", op, d.n);
  require<ValueError>(d.swiglu_limit > 0, "{}: swiglu_limit = {}, must be positive", op,
                      d.swiglu_limit);
  require<UnsupportedError>(d.form != GemmForm::every_group,
                            "{}: epilogue = SwiGLU, must be none for every_group", op);
}

void check_arguments(const char* op, const GemmPlan& plan, const GemmArguments& arguments,
                     std::span<std::byte> workspace) {
  Checker(op, plan, arguments).check(plan.workspace_bytes(), workspace);
}

}  // namespace nvfp4
